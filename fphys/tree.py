"""Frozen dataclasses that are JAX pytrees."""

import dataclasses
import operator
from collections.abc import Callable
from typing import Any, Self, TypeVar, dataclass_transform

import jax

__all__ = ["Tree", "pytree", "static"]

T = TypeVar("T")


def static(**kwargs: Any) -> Any:
    """Declare a field that belongs to the tree's structure: hashable, never traced; no gradient flows to it.

    Args:
        kwargs: as for ``dataclasses.field``, ``default=0`` say.
    """
    return dataclasses.field(metadata={"static": True}, **kwargs)


class Tree:
    """Base class of dataclasses that :func:`pytree` registers."""

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed."""
        return dataclasses.replace(self, **changes)  # type: ignore[type-var]

    def __getstate__(self) -> dict[str, Any]:
        """The fields: what an object remembers besides, such as compiled programs, is not copied or pickled."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}  # type: ignore[arg-type]


@dataclass_transform(frozen_default=True, field_specifiers=(static, dataclasses.field))
def pytree(cls: type[T]) -> type[T]:
    """Class decorator: make a frozen dataclass and register it as a pytree.

    Array fields are leaves; fields declared with :func:`static` belong to the structure. JAX's own
    ``register_dataclass`` is not used: in jaxlib 0.10.2 the structures of two such classes are equal if they have the
    same number of fields and the same static values, and a jitted function then occasionally runs the program that was
    compiled for the other class.
    """
    frozen = dataclasses.dataclass(frozen=True)(cls)
    fields = dataclasses.fields(frozen)  # type: ignore[arg-type]
    leaves = [f.name for f in fields if not f.metadata.get("static")]
    meta = [f.name for f in fields if f.metadata.get("static")]
    names, keys = [*leaves, *meta], [jax.tree_util.GetAttrKey(name) for name in leaves]
    get_leaves, get_meta = _getter(leaves), _getter(meta)
    jax.tree_util.register_pytree_with_keys(
        frozen,
        lambda tree: (tuple(zip(keys, get_leaves(tree), strict=True)), get_meta(tree)),
        lambda fixed, values: frozen(**dict(zip(names, (*values, *fixed), strict=True))),
        lambda tree: (get_leaves(tree), get_meta(tree)),
    )
    return frozen


def _getter(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """A function that returns these attributes of an object as a tuple."""
    if len(names) > 1:
        return operator.attrgetter(*names)
    return lambda tree: tuple(getattr(tree, name) for name in names)
