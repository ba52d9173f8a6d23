"""C++ in files of its own: headers that editors read, whose functions Warp's functions call.

Warp puts the text of a native function between the braces of a function, where C++ allows neither functions nor
templates. So a header is the text of a Warp function without effect, and begins by closing that function's brace. Warp
writes a function after those that it calls: the Python body of a native function, which is not compiled, calls the
header that it needs. Warp's hash of a kernel has all these texts in it, and no path: a kernel is built again when a
header changes, and two checkouts share what is equal in both. A header cannot write ``int(`` or ``float(``: these are
macros of Warp's.
"""

import warp as wp

_FOLDER = __file__.replace("\\", "/").rpartition("/")[0]


def _text(name: str, read: list[str]) -> str:
    """A header, and before it what it includes. A compile unit that gets the same from several headers takes one."""
    if name in read:
        return ""
    read.append(name)
    lines = []
    with open(f"{_FOLDER}/{name}", encoding="utf-8") as file:
        for line in file:
            if line.startswith('#include "'):
                folder, other = name.rpartition("/")[0], line.split('"')[1]
                while other.startswith("../"):
                    folder, other = folder.rpartition("/")[0], other[3:]
                lines.append(_text(f"{folder}/{other}".lstrip("/"), read))
            elif line != "#pragma once\n":
                lines.append(line)
    guard = "FPHYS_" + name.replace("/", "_").replace(".", "_").upper()
    return f"#ifndef {guard}\n#define {guard}\n{''.join(lines)}#endif\n"


def header(name: str) -> wp.Function:
    """A file, by its path in this folder, as a Warp function, for native functions to call."""

    def included(): ...

    included.__qualname__ = included.__name__ = name.replace("/", "_").replace(".", "_")
    text = f"}}\n{_text(name, [])}static CUDA_CALLABLE void {included.__name__}_ends()\n{{\n"
    return wp.func_native(text)(included)


def func_native(on_gpu: str | None = None, adjoint: bool = False):
    """The C++ function ``fphys::`` of the same name and parameters, from the header that the Python body calls.

    With ``on_gpu``, a statement, the header has the function for a processor only. With ``adjoint`` it has a function
    ``adj_``, too, of the parameters, their cotangents and the result's. The name is Warp's, which reads the type that
    is returned where a decorator is so called.
    """

    def decorate(function):
        name, code = function.__name__, function.__code__
        given = code.co_varnames[: code.co_argcount]
        text = f"    return fphys::{name}({', '.join(given)});\n"
        if on_gpu is not None:
            text = f"#ifdef __CUDACC__\n    {on_gpu}\n#else\n{text}#endif\n"
        bars = ", ".join((*given, *(f"adj_{argument}" for argument in given), "adj_ret"))
        return wp.func_native(text, f"    fphys::adj_{name}({bars});\n" if adjoint else None)(function)

    return decorate
