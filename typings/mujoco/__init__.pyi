"""MuJoCo's bindings are compiled and come without types; what is read from them is converted at once."""

from typing import Any

def __getattr__(name: str) -> Any: ...
