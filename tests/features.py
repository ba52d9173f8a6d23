"""The table of features in ``docs/features.md``: what is compared with MuJoCo, and by which tests.

``python -m tests.features`` writes it; a test holds the committed one against the tests that there are. A mark is a
case of a test: a feature whose test fails fails the suite, or the suite in full size.
"""

from pathlib import Path

from .gradients import contact_scenes
from .gradients import test_contact_states as gradients
from .parity import corpus
from .parity import test_contact_states as parity

PAGE = Path(__file__).parents[1] / "docs" / "features.md"
HEAD = """# Features compared with MuJoCo

Written by `python -m tests.features`. Each row is a mechanism of `tests/parity/corpus.py`; each mark is a case of a
test. ✓ runs under `make test`, in a reduced size, and under `make verify`; ○ runs under `make verify` alone.

- *Motion*: accelerations and the next velocities within 1e-6 of MuJoCo 4.0.0 on at least 99 % of 2,000 states (100 in
  the reduced size) along MuJoCo's own trajectories under random actions, and the contacts' sets, distances, frames and
  forces (`tests/parity/test_contact_states.py`). What is left out there, and why, is said in that file. In every state
  of Gymnasium's point.xml rounding decides whether its ball touches the floor; the same file with the floor a
  millimetre higher stands for it. ≈: MuJoCo finds these contacts by a search, here to ccd_tolerance 1e-12 (its default
  is 1e-6, and accelerations then differ by 1e-4 to 1e-2); accelerations agree on at least 99 % of the states to
  five times what MuJoCo's differ by when its search goes on to 1e-13 (3e-5 at most; to 1e-6 where no side is curved),
  and where flat sides make several contacts, on at least 99 % of those in which its own contacts agree with one
  another, 88 % of all (`tests/parity/test_convex_states.py`).
- *float32*: the same states in float32, median 1e-5, 99th percentile 1e-3.
- *Gradient*: one step within 1e-5 of centred differences by state, control and every parameter
  (`tests/gradients/test_contact_states.py`). A second mark: 32 steps within 1e-4; `linearize` within 1e-5 of
  `mjd_transitionFD`; no NaN in 1,252 states, pressed in, on an edge, parting and symmetric; float32 within 1e-3.

| mechanism or feature | motion | float32 | gradient |
|---|:-:|:-:|:-:|
"""
QUICK, FULL, SEARCHED = "✓", "○", "≈"
REFUSED, NEITHER = "refused", "rounding"


def mark(quick: bool) -> str:
    return QUICK if quick else FULL


def row(name: str) -> str:
    motion, single = mark(name in parity.QUICK), mark(name in parity.SINGLE)
    if not corpus.supported(name):
        motion = single = REFUSED
    if name in corpus.searched():
        motion, single = mark(True) + SEARCHED, ""
    if name == "gymnasium-point":
        motion = single = NEITHER
    gradient = (
        mark(name in gradients.STEPPED) if name in (*contact_scenes.NAMES, *corpus.FEATURES, *corpus.searched()) else ""
    )
    gradient += mark(name == gradients.QUICK) if name in contact_scenes.NAMES else ""
    return f"| {name} | {motion} | {single} | {gradient} |"


def table() -> str:
    """The page as the tests of today make it."""
    names = sorted(corpus.sources(), key=lambda n: (n in corpus.FEATURES, n in corpus.SCENES))
    return HEAD + "\n".join(row(name) for name in [*names, *corpus.searched()]) + "\n"


if __name__ == "__main__":
    PAGE.write_text(table())
