"""What ``inspect.signature`` shows of modules: the arguments of the constructor.

Flax's metaclass takes any arguments, so editors and ``help`` would see ``(*args, **kwargs)`` for every layer.
"""

import inspect
from typing import Any

from flax import nnx


class _Signature:
    """A class attribute, so that a user's own modules have it too."""

    def __get__(self, instance: Any, owner: type) -> inspect.Signature:
        if instance is not None:
            raise AttributeError("__signature__")  # an instance has that of __call__
        found: dict[str, inspect.Parameter] = {}
        for cls in owner.__mro__:
            if "__init__" not in vars(cls) or cls is object:
                continue
            own = list(inspect.signature(cls.__init__).parameters.values())[1:]
            found |= {p.name: p for p in own if p.name not in found and (not found or p.kind is p.KEYWORD_ONLY)}
            if not any(p.kind is p.VAR_KEYWORD for p in own):
                break  # nothing is passed on
        else:
            return inspect.Signature(_ordered(found))
        return inspect.Signature(_ordered({name: p for name, p in found.items() if p.kind is not p.VAR_KEYWORD}))


def _ordered(found: dict[str, inspect.Parameter]) -> list[inspect.Parameter]:
    return sorted(found.values(), key=lambda p: p.kind)


nnx.Module.__signature__ = _Signature()  # type: ignore[attr-defined]
