"""Frozen dataclasses as pytrees, and when their structures are equal."""

import itertools
from typing import Any

import jax
import pytest

import fphys
from fphys.particles import mpm, sph
from fphys.tree import Tree, pytree, static


@pytree
class Left(Tree):
    x: Any
    y: Any
    kind: str = static(default="a")


@pytree
class Right(Tree):
    x: Any
    y: Any
    kind: str = static(default="a")


def classes(base: type[Tree]) -> list[type[Tree]]:
    """All registered subclasses of a class."""
    below = [c for k in base.__subclasses__() for c in (k, *classes(k))]
    return [c for c in below if "__dataclass_params__" in vars(c)]


def bare(cls: type[Tree]) -> Any:
    """The structure of an instance with all fields 0, bypassing its constructor."""
    instance = object.__new__(cls)
    for name in cls.__dataclass_fields__:  # type: ignore[attr-defined]
        object.__setattr__(instance, name, 0)
    return jax.tree.structure(instance)


def test_structures_of_two_classes_differ():
    """The classes agree in fields and static values. If they were equal, jit could run one's program for the other.

    JAX's caches compare structures whose hashes collide, which made sand flow like metal in one of ten test runs.
    """
    left, right = Left(1.0, 2.0), Right(1.0, 2.0)
    assert jax.tree.structure(left) != jax.tree.structure(right)
    assert jax.tree.structure(left) == jax.tree.structure(left.replace(x=3.0))
    assert jax.tree.structure(left) != jax.tree.structure(left.replace(kind="b"))


def test_no_two_structures_of_the_library_are_equal():
    found = [fphys.Model, *classes(Tree)]
    assert {mpm.Sand, mpm.VonMises, sph.State, fphys.Info} <= set(found)
    for a, b in itertools.combinations(found, 2):
        assert bare(a) != bare(b), f"{a} and {b}"


def test_a_tree_is_taken_apart_and_built_again():
    tree = Left({"a": 1.0}, 2.0, kind="b")
    paths, structure = jax.tree.flatten_with_path(tree)
    assert [jax.tree_util.keystr(path) for path, _ in paths] == [".x['a']", ".y"]
    assert jax.tree.unflatten(structure, [leaf for _, leaf in paths]) == tree
    assert jax.tree.map(lambda v: 2 * v, tree) == Left({"a": 2.0}, 4.0, kind="b")
    with pytest.raises(AttributeError):
        tree.x = 1.0  # type: ignore[misc]
