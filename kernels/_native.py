"""C++ in headers, with functions that Warp functions call.

Warp pastes the text of a native function inside a C++ function, where functions and templates are not allowed. So the
text of a header starts by closing that function's brace, and ends by opening an empty function. It becomes a Warp
function without effect. Warp writes callees first, so the Python body of a native function, which is never compiled,
calls the header that it needs. Warp's hash of a kernel covers these texts and no path: a kernel is rebuilt when a
header changes, and two checkouts share the binaries of equal kernels. A header cannot write ``int(`` or ``float(``,
which are macros of Warp.
"""

import warp as wp

_FOLDER = __file__.replace("\\", "/").rpartition("/")[0]


def _text(name: str, read: list[str]) -> str:
    """A header, after what it includes. An include guard keeps the first copy in a compile unit."""
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
    """Call the C++ function ``fphys::NAME`` of the same name and parameters; the Python body names its header.

    Args:
        on_gpu: a statement to run on a GPU instead, if the C++ is for processors only.
        adjoint: the header also has ``adj_NAME``, of the parameters, their cotangents, and the result's cotangent.

    The decorator must have Warp's own name: Warp recognises it by that name to find the return type.
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


def func_replay(function: wp.Function):
    """``wp.func_replay``, which works whatever else has the function's name.

    Warp numbers functions of one name, and calls a replay by the number of its function. But it defines the replay by a
    number of its own, which is another one if a second function of that name exists in the process.
    """

    def decorate(replay):
        wp.func_replay(function)(replay)
        function.custom_replay_func.native_func = f"replay_{function.native_func}"
        return replay

    return decorate
