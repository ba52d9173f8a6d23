"""The table of features in ``docs/features.md``: what is compared with MuJoCo, and by which tests.

``python -m tests.features`` writes it; a test holds the committed one against the tests that there are. A tick is a
case of a test: a feature whose test fails fails the suite.
"""

from pathlib import Path

from .gradients import contact_scenes
from .parity import corpus

PAGE = Path(__file__).parents[1] / "docs" / "features.md"
HEAD = """# Features compared with MuJoCo

Written by `python -m tests.features`. Each row is a mechanism of `tests/parity/corpus.py`; each tick is a case of a
test that runs under `make verify`, some of them in a reduced size under `make test`, too.

- *Motion*: accelerations and the next velocities within 1e-6 of MuJoCo 4.0.0 on at least 99 % of 2,000 states along
  MuJoCo's own trajectories under random actions, and the contacts' sets, distances, frames and forces
  (`tests/parity/test_contact_states.py`). What is left out there, and why, is said in that file. In every state of
  Gymnasium's point.xml rounding decides whether its ball touches the floor; the same file with the floor a millimetre
  higher stands for it.
- *float32*: the same states in float32, median 1e-5 (of one ill-conditioned arm 5e-5), 99th percentile 1e-3.
- *Gradient*: one step within 1e-5 of centred differences by state, control and every parameter
  (`tests/gradients/test_contact_states.py`). A second tick: 32 steps within 1e-4; `linearize` within 1e-5 of
  `mjd_transitionFD`; no NaN in 1,252 states, pressed in, on an edge, parting and symmetric; float32 within 1e-3.

| mechanism or feature | motion | float32 | gradient |
|---|:-:|:-:|:-:|
"""
TICK = "✓"
REFUSED, NEITHER = "refused", "rounding"


def table() -> str:
    """The page as the tests of today make it."""
    rows = []
    for name in sorted(corpus.sources(), key=lambda n: (n in corpus.FEATURES, n in corpus.SCENES)):
        motion = TICK if corpus.supported(name) else REFUSED
        motion = NEITHER if name == "gymnasium-point" else motion
        gradient = "✓✓" if name in contact_scenes.NAMES else TICK if name in corpus.FEATURES else ""
        rows.append(f"| {name} | {motion} | {motion} | {gradient} |")
    return HEAD + "\n".join(rows) + "\n"


if __name__ == "__main__":
    PAGE.write_text(table())
