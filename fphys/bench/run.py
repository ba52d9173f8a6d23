"""``fphys bench``: select the cases, measure them, and report."""

import fnmatch
import os
import sys
from collections.abc import Iterable, Sequence

from .case import Case

PROFILES = "runs/profile"


def main(
    pattern: str | None = None,
    *,
    json_path: str | os.PathLike[str] | None = None,
    list_only: bool = False,
    quick: bool = False,
    worlds: Sequence[int] | None = None,
    profile: bool = False,
    cases: Sequence[Case] | None = None,
    peers: bool = False,
) -> int:
    """Run the benchmark. The table goes to standard output, progress to standard error.

    Args:
        pattern: run only the cases whose name contains it or matches it as a glob, or which have it as
            a tag; and the cases that they are compared with. All by default.
        json_path: where to write the results, with device, versions and date. The file is rewritten after
            each group of cases, so that an interruption does not lose what was measured.
        list_only: list the cases without running them.
        quick: at most 64 worlds, no case tagged "large", and few samples. Shows that cases run, not how fast.
        worlds: numbers of worlds to run instead of each case's own.
        profile: also print the time of each stage of fphys's operations, and write a trace of each case under
            ``runs/profile``, for TensorBoard or Perfetto.
        cases: the cases to choose from; fphys's own by default.
        peers: choose from the cases of :mod:`.peers` instead, and report where fphys leads.

    Returns:
        0 if every result was valid; 1 if one was wrong or failed; 2 if no case matches, or only large ones do and
        ``quick`` is set.
    """
    if peers:
        from .peers import peer_cases, summary, verdict

        cases = peer_cases()
    elif cases is None:
        from .cases import CASES as cases
    matching = select(cases, pattern)
    chosen = [case for case in matching if not (quick and "large" in case.tags)]
    if matching and not chosen:
        print(f"every benchmark case that matches {pattern!r} is large: run them without --quick", file=sys.stderr)
        return 2
    if not chosen:
        names = "\n".join(f"  {case.name}" for case in cases)
        print(f"no benchmark case matches {pattern!r}; there are:\n{names}", file=sys.stderr)
        return 2
    if list_only:
        for case in chosen:
            print(f"{case.name:36} {' '.join(f'{w:,}' for w in case.worlds):20} {' '.join(case.tags)}")
        return 0

    from ..train import keep_memory
    from .measure import QUICK, Effort, measure
    from .report import HEADER, row, stage_rows, write_json

    keep_memory()
    effort = QUICK if quick else Effort()
    plan = [
        (members, count)
        for group in groups(chosen)
        for count, members in _by_worlds(group, worlds, 64 if quick else None)
    ]
    total, done, results = sum(len(members) for members, _ in plan), 0, []
    print(HEADER, flush=True)
    for members, count in plan:
        done += len(members)
        _progress(f"[{done}/{total}] {', '.join(case.name for case in members)}: {count:,} worlds")
        new = measure(members, count, effort, PROFILES if profile else None)
        _progress("")
        for result in new:
            print("\n".join(filter(None, (row(result), stage_rows(result)))), flush=True)
        results += new
        if json_path is not None:
            write_json(json_path, results, complete=done == total, more=verdict(results) if peers else None)
    if peers:
        print(f"\n{summary(results)}")
    invalid = [result for result in results if not result.valid]
    for result in invalid:
        print(f"\nINVALID {result.case}, {result.worlds:,} worlds: {result.error}", file=sys.stderr)
    if profile:
        print(f"traces are under {PROFILES}", file=sys.stderr)
    return 1 if invalid else 0


def select(cases: Sequence[Case], pattern: str | None) -> list[Case]:
    """The cases that match, and those that they are compared with, in their original order."""
    known: dict[str, Case] = {}
    names: set[str | None] = set()
    for case in cases:
        if case.name in known:
            raise ValueError(f"two benchmark cases are called {case.name}: names must be unique")
        if case.relative_to is not None and case.relative_to not in known:
            raise ValueError(
                f"benchmark case {case.name} is relative to {case.relative_to}: no earlier case has that name"
            )
        known[case.name] = case
        if pattern is None or pattern in case.name or fnmatch.fnmatch(case.name, pattern) or pattern in case.tags:
            name: str | None = case.name
            while name is not None:
                names.add(name)
                name = known[name].relative_to
    return [case for case in cases if case.name in names]


def groups(cases: Iterable[Case]) -> list[list[Case]]:
    """Group cases that are compared with each other, directly or through a third."""
    together: list[list[Case]] = []
    for case in cases:
        group = next((g for g in together if any(other.name == case.relative_to for other in g)), None)
        if group is None:
            together.append([case])
        else:
            group.append(case)
    return together


def _by_worlds(group: list[Case], asked: Sequence[int] | None, most: int | None) -> list[tuple[int, list[Case]]]:
    """For each number of worlds, the cases of the group that run with it."""
    limit = most if most is not None and not asked else sys.maxsize

    def own(case: Case) -> set[int]:
        return ({n for n in asked or case.worlds if n <= limit} or {limit}) if case.worlds else {1}

    counts = {case.name: own(case) for case in group}
    return [(n, [case for case in group if n in counts[case.name]]) for n in sorted(set().union(*counts.values()))]


def _progress(text: str) -> None:
    """Show what is running now, on one line that is overwritten. Only on a terminal."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
