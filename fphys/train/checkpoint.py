"""Checkpoints: complete or absent, with a hash of every file, and never pickled.

Orbax saves a step into a hidden folder, together with the loop's other state (the data's position) and a list of the
SHA-256 of every file. The folder is then renamed to the number of the step. If the process is killed at any moment, the
earlier checkpoints remain. At worst a hidden folder is left over, and the next save removes it.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import shutil
import warnings
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from ..distributed import is_first, meet
from ..errors import FphysError
from ..model.arguments import whole_number

T = TypeVar("T")

_MANIFEST = "manifest.json"


class CheckpointError(FphysError, RuntimeError):
    """A checkpoint cannot be written or read; the message names the folder and the cause."""


@dataclasses.dataclass(frozen=True)
class Checkpoints:
    """A folder of checkpoints: one every ``every`` steps, of which the newest ``keep`` stay.

    What was just saved stays, too, where there are later ones, for example of an earlier run.

    Raises:
        CheckpointError: ``folder`` is a file. ValueError: ``every`` or ``keep`` is below one.
    """

    folder: str | os.PathLike[str]
    every: int = 1000
    keep: int = 3

    def __post_init__(self) -> None:
        if self.every < 1 or self.keep < 1:
            raise ValueError(f"every={self.every} and keep={self.keep} must be at least 1")
        if (path := Path(self.folder)).is_file():
            raise CheckpointError(f"{path} is a file{_posing(path)}; checkpoints are kept in a folder, give one")
        object.__setattr__(self, "folder", path.absolute())  # orbax takes no relative path

    @property
    def steps(self) -> list[int]:
        """The steps that were saved, oldest first. :meth:`restore` checks whether their files are intact."""
        names = os.listdir(self.folder) if os.path.isdir(self.folder) else []
        return sorted(int(name) for name in names if name.isdecimal())

    def prepare(self) -> None:
        """Create the folder.

        Raises:
            CheckpointError: it cannot be created or written to.
        """
        try:
            os.makedirs(self.folder, exist_ok=True)
        except OSError as error:
            raise CheckpointError(f"{self.folder} cannot be created: {error}; choose another folder") from error
        if not os.access(self.folder, os.W_OK | os.X_OK):
            raise CheckpointError(f"{self.folder} cannot be written: choose another folder, or change its permissions")

    def save(self, step: int, state: Any, extra: dict[str, Any] | None = None) -> Path:
        """Save a pytree of arrays, and ``extra``, which must fit JSON; then remove checkpoints that are too old.

        A checkpoint of the same step is replaced.

        Of several processes each calls this, and each writes its own part of arrays that are spread over them.

        Raises:
            CheckpointError: it could not be written, for example to a full disk. Earlier ones are untouched.
            TypeError, ValueError: ``step`` is no whole number, or is negative. ``extra`` does not fit JSON. Two arrays
                would have one name.
        """
        step = whole_number("step", step)
        if step < 0:
            raise ValueError(f"step is {step}, must be 0 or more")
        beside, arrays = _as_json(extra or {}), _named(state)
        final, part, replaced = (Path(self.folder) / name for name in (f"{step}", f".{step}.part", f".{step}.old.part"))
        try:
            if is_first():
                self._put_back()
                for old in Path(self.folder).glob(".*.part"):  # left by a killed process
                    shutil.rmtree(old)
                part.mkdir(parents=True)
            meet("checkpoint begins")
            _write(part, arrays, beside)
            if is_first():
                if final.is_dir():
                    os.rename(final, replaced)
                os.rename(part, final)
                shutil.rmtree(replaced, ignore_errors=True)
                for old in self._too_old(step):
                    shutil.rmtree(Path(self.folder) / str(old))
            meet("checkpoint ends")
        except Exception as cause:
            if is_first():  # the others may still be writing: without it their errors would hide this one
                shutil.rmtree(part, ignore_errors=True)
                self._put_back()
            held = f"; step {self.steps[-1]} can still be loaded" if self.steps else ""
            files = [path for path in (final, *Path(self.folder).glob(".*.part")) if path.is_file()]
            why = f"{files[0]} is a file: move it away" if files else f"{_short(cause)}. {_advice(Path(self.folder))}"
            raise CheckpointError(f"could not save step {step} in {self.folder}: {why}{held}") from cause
        return final

    def _put_back(self) -> None:
        """Put back a step that was being replaced when the process was killed."""
        for old in Path(self.folder).glob(".*.old.part"):
            step = old.with_name(old.name.split(".")[1])
            with contextlib.suppress(OSError):  # another process puts it back, or the folder is read only
                if not step.exists():
                    os.rename(old, step)

    def _too_old(self, step: int) -> list[int]:
        """Steps before the ``keep`` newest but for the one just saved; what has no list of its files does not count."""
        whole = [s for s in self.steps if (Path(self.folder) / str(s) / _MANIFEST).is_file()]
        return [s for s in self.steps if s < whole[-self.keep :][0] and s != step]

    def restore(self, like: T) -> tuple[T, dict[str, Any]] | None:
        """The newest intact checkpoint and its ``extra``; None if there is none at all.

        Damaged checkpoints are skipped with a warning.

        Args:
            like: a pytree with the structure, shapes, dtypes and shardings to restore.

        Raises:
            CheckpointError: all are damaged, or the newest intact one does not fit ``like``.
        """
        self._put_back()
        damaged = []
        for step in reversed(self.steps):
            path = Path(self.folder) / str(step)
            if reason := _damage(path):
                damaged.append(f"{path}: {reason}")
                continue
            if damaged:
                warnings.warn(f"damaged, so step {step} is loaded: {'; '.join(damaged)}", stacklevel=2)
            return _read(path, like)
        if damaged:
            raise CheckpointError(f"no checkpoint in {self.folder} is intact: {'; '.join(damaged)}")
        return None


def _as_json(extra: dict[str, Any]) -> str:
    try:
        return json.dumps(extra)
    except (TypeError, ValueError) as error:
        raise type(error)(f"extra does not fit JSON: {error}; give numbers, text, lists and dictionaries") from error


def _write(part: Path, arrays: dict[str, Any], extra: str) -> None:
    import orbax.checkpoint as ocp

    with ocp.Checkpointer(ocp.StandardCheckpointHandler()) as writer:
        writer.save(part / "state", args=ocp.args.StandardSave(arrays))
    if not is_first():
        return
    (part / "extra.json").write_text(extra, encoding="utf-8")
    (part / _MANIFEST).write_text(json.dumps(_hashes(part), indent=1), encoding="utf-8")
    for file in (part / _MANIFEST, part):
        handle = os.open(file, os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)


def _read(path: Path, like: T) -> tuple[T, dict[str, Any]]:
    import orbax.checkpoint as ocp

    wanted = _named(like)
    with ocp.Checkpointer(ocp.StandardCheckpointHandler()) as reader:
        held = {name: (m.shape, np.dtype(m.dtype)) for name, m in reader.metadata(path / "state").item_metadata.items()}
        _same(path, held, {name: (np.shape(x), dtype_of(x)) for name, x in wanted.items()})
        found = reader.restore(path / "state", args=ocp.args.StandardRestore(wanted))
    state = jax.tree_util.tree_map_with_path(lambda p, leaf: _typed(found.get(_name(p), _placed(leaf)), leaf), like)
    return state, json.loads((path / "extra.json").read_text(encoding="utf-8"))


def _same(path: Path, held: dict[str, Any], wanted: dict[str, Any]) -> None:
    faults = [f"{name} is missing" for name in wanted if name not in held]
    faults += [f"{name} is not expected" for name in held if name not in wanted]
    faults += [
        f"{name} has {held[name][1]}{held[name][0]}, must have {wanted[name][1]}{wanted[name][0]}"
        for name in wanted
        if name in held and held[name] != wanted[name]
    ]
    if faults:
        shown = "; ".join(faults[:5]) + (f"; and {len(faults) - 5} more" if len(faults) > 5 else "")
        raise CheckpointError(
            f"{path} was saved with another model, configuration, optimizer, clip or precision: {shown}. Use those it "
            "was saved with, or another folder"
        )


def _named(tree: Any) -> dict[str, Any]:
    """Leaves by path, with random keys as integers and without empty arrays. Raises ValueError if two have one name."""
    leaves = [(path, leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(tree) if np.size(leaf)]
    paths: dict[str, Any] = {}
    for path, _ in leaves:
        if (first := paths.setdefault(_name(path), path)) is not path:
            one, other = map(jax.tree_util.keystr, (first, path))
            raise ValueError(f"{one} and {other} would both be named {_name(path)}: rename one, without a dot")
    return {_name(path): jax.random.key_data(leaf) if _is_key(leaf) else leaf for path, leaf in leaves}


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".") or "value"


def _placed(leaf: Any) -> Any:
    """An empty array, bound to its devices as the others are: a program with a mixture would be compiled twice."""
    return jax.device_put(leaf, leaf.sharding) if isinstance(leaf, jax.Array) else leaf


def _typed(found: Any, like: Any) -> Any:
    return jax.random.wrap_key_data(found, impl=jax.random.key_impl(like)) if _is_key(like) and np.size(like) else found


def dtype_of(leaf: Any) -> np.dtype[Any]:
    """NumPy's type of an array, or of a number of Python."""
    return np.dtype(leaf.dtype) if hasattr(leaf, "dtype") else np.asarray(leaf).dtype


def _is_key(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _hashes(path: Path) -> dict[str, str]:
    """The SHA-256 of every file except the manifest."""
    files = sorted(file for file in path.rglob("*") if file.is_file() and file != path / _MANIFEST)
    return {file.relative_to(path).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def _damage(path: Path) -> str | None:
    """What is wrong with a checkpoint's files, if anything."""
    if not path.is_dir():
        return f"a file{_posing(path)}, not a folder of orbax"
    try:
        held = json.loads((path / _MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError) as cause:
        return f"{_MANIFEST} cannot be read ({_short(cause)})"
    found = _hashes(path)
    wrong = sorted(name for name in held | found if held.get(name) != found.get(name)) if isinstance(held, dict) else []
    if wrong or held != found:
        return f"{', '.join(wrong[:3]) or _MANIFEST} changed since it was written"
    return None


def _posing(path: Path) -> str:
    """A note about files that look like a pickle, plain or in torch's zip."""
    head = path.read_bytes()[:4]
    pickled = head[:1] == b"\x80" or head == b"PK\x03\x04"
    return ", and looks like a pickle, which is never loaded because loading runs its code" if pickled else ""


def _advice(folder: Path) -> str:
    """What to do where a write failed, with the disk and its room."""
    disk = next(path for path in (folder, *folder.parents) if os.path.ismount(path))
    free = shutil.disk_usage(disk).free / 1e6
    return f"The disk at {disk} has {free:.0f} MB free. Full or read-only? Make room there, or choose another folder"


def _short(cause: BaseException) -> str:
    text = " ".join(str(cause).split())
    return f"{type(cause).__name__}: {text if len(text) <= 200 else f'{text[:100]} ... {text[-100:]}'}"
