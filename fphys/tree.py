"""Frozen dataclasses that are JAX pytrees."""

import dataclasses
from typing import Any, Self, TypeVar, dataclass_transform

import jax

T = TypeVar("T")


def static(**kwargs: Any) -> Any:
    """Declare a field that is part of the tree's structure: hashable, never traced."""
    return dataclasses.field(metadata={"static": True}, **kwargs)


class Tree:
    """Base of the dataclasses that :func:`pytree` registers."""

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed."""
        return dataclasses.replace(self, **changes)  # type: ignore[type-var]


@dataclass_transform(frozen_default=True, field_specifiers=(static, dataclasses.field))
def pytree(cls: type[T]) -> type[T]:
    """Class decorator: a frozen dataclass, registered as a pytree.

    Array fields are leaves; fields declared with :func:`static` belong to the structure.
    """
    frozen = dataclasses.dataclass(frozen=True)(cls)
    fields = dataclasses.fields(frozen)  # type: ignore[arg-type]
    return jax.tree_util.register_dataclass(
        frozen,
        data_fields=[f.name for f in fields if not f.metadata.get("static")],
        meta_fields=[f.name for f in fields if f.metadata.get("static")],
    )
