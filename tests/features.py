"""The table in ``docs/features.md``: which features are compared with MuJoCo, and by which tests.

``JAX_ENABLE_X64=1 python -m tests.features`` writes it. A test checks that the committed table is current. Each mark
stands for a test case, so a feature that stops working fails the suite, or the suite in full size.
"""

from pathlib import Path

from .gradients import contact_scenes
from .gradients import test_contact_states as gradients
from .parity import corpus
from .parity import test_contact_states as parity

PAGE = Path(__file__).parents[1] / "docs" / "features.md"
HEAD = """# Features compared with MuJoCo

`JAX_ENABLE_X64=1 python -m tests.features` writes this page. Each row is a mechanism of `tests/parity/corpus.py`, and
each mark is a test case. ✓ runs in `make test`, in reduced size, and in `make verify`. ○ runs only in `make verify`.

- *Motion*: accelerations and the next velocities agree with MuJoCo 4.0.0 to 1e-6 on at least 99 % of 2,000 states (100
  in reduced size) along MuJoCo's own trajectories under random actions. The sets, distances, frames and forces of
  contacts are compared too. `tests/parity/test_contact_states.py` lists the exceptions and their reasons. In
  Gymnasium's point.xml, rounding decides in every state whether the ball touches the floor. The same file with the
  floor a millimetre higher replaces it.
- *Motion* with ≈: MuJoCo finds these contacts by a search. Here its ccd_tolerance is 1e-12; with the default of 1e-6,
  accelerations differ by 1e-4 to 1e-2. Accelerations agree on at least 99 % of the states
  (`tests/parity/test_convex_states.py`). The tolerance is five times the change of MuJoCo's own accelerations when its
  search continues to 1e-13, which is at most 3e-5, or 1e-6 if no side is curved. If flat sides make several contacts,
  only the states in which MuJoCo's own contacts agree with each other count, 88 % of all.
- *float32*: the same states in float32, with a median error of 1e-5 and a 99th percentile of 1e-3.
- *USD files* become the same models: accelerations agree to 1e-6 with those of the same mechanism in MJCF, for joints,
  limits, drives, masses and units (`tests/model/test_usd.py`). `fphys check` examines them as it does MJCF.
- *Gradient*: one step agrees to 1e-5 with centred differences with respect to state, control and every parameter
  (`tests/gradients/test_contact_states.py`). A second mark: 32 steps agree to 1e-4; `linearize` agrees to 1e-5 with
  `mjd_transitionFD`; no NaN in 1,252 states, pressed in, on an edge, separating and symmetric; float32 agrees to 1e-3.

Several contacts of meshes, boxes, cylinders and capsules are MuJoCo's in any pose
(`tests/contact/test_manifolds.py`), and with `multiccd` off the one that MuJoCo has. These cases differ:

- *MuJoCo's contacts lie along another normal than its single contact.* A cylinder (radius 0.1, along y) and a cube
  (half side 0.05) whose lower edge along y is pressed 1.4 mm into its side at 46 degrees: MuJoCo's two contacts are
  horizontal and 1.0 mm deep, its single one is 1.4 mm deep at 46 degrees. fphys keeps the single one. A face counts
  if it is within 20 degrees of the single contact's normal. The line of a cylinder or capsule counts within 5
  degrees, and it is that of the face. MuJoCo takes that of the single contact's normal, up to a millimetre to the
  side.
- *Rounding decides.* A disc that lies on a face touches with four of sixteen corners, of which many span the same
  area. Of parts that touch equally deep within 1e-9 m (two level faces), any may be named first.
- *A side of a mesh is not quite convex or not quite flat*, as MuJoCo merges triangles up to 1e-3 rad apart: crossings
  of two of its sides that are no corner are left out. Points over a corner of the other side are MuJoCo's where the
  line that they lie on ends at two sides. Where MuJoCo cuts this line off again, they are within some micrometres.
- *`nativeccd` off* is read as on.
- *Default tolerance.* MuJoCo's line on a cylinder is known to about the root of `ccd_tolerance`: up to 1e-4 m.
- *Meshes and cylinders buried by centimetres.* robosuite's jaco and robotiq_s grippers and Newton's quadruped.urdf are
  one to two centimetres inside themselves. Their contacts agree to 2e-7 m (meshes) and 5e-6 m (cylinders side by
  side), their accelerations to 1e-7 to 1e-3. Given fphys's contacts, MuJoCo's accelerations agree to 3e-13. In
  robosuite's rethink gripper a cylinder is in a box: the first case of this list.

No-slip iterations are MuJoCo's sweeps, in its order, to its tolerance and its limit, island by island; the gradient is
that of the sweeps as taken, converged or not. `fphys.inverse` knows nothing of them, as `mj_inverse`. Two cases differ:

- *Rolling friction is small.* An elliptic contact's force on its ellipse has a multiplier, for which MuJoCo takes 20
  steps of Newton's method: too few where one coefficient is a hundredth of another. A box of half sides 0.1, 0.15 and
  0.1 that slides on a plane with `condim="6"` and `friction="0.6 0.02 0.001"`: accelerations differ by up to 2e-6
  after a sweep, in twelve states of its fall. fphys takes the steps until rounding.
- *A few sweeps between two boxes.* Sweeps that do not converge depend on the order of the contacts. That of the
  contacts of two boxes is not MuJoCo's: up to 1e-4 after five sweeps.

`sleep` is read as off, with a warning. MuJoCo halts a tree whose velocities are below `sleep_tolerance`, so that its
motion differs from that of the same file without sleep by about that: 6e-6 m for a box and a ball that come to rest
(`sleep_tolerance` 1e-3). A body that is to sleep from the start (`sleep="init"`) is refused, for here it would fall.

What an ellipsoid carries of the medium is MuJoCo's at loading, and follows from sizes that are replaced by integrals
that are exact to rounding; MuJoCo's own have errors of up to 1e-5. Where two lengths of a box or an ellipsoid are
equal, its drag has a kink in them, and the gradient is that of one side.

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
    """The page, from the current tests."""
    names = sorted(corpus.sources(), key=lambda n: (n in corpus.FEATURES, n in corpus.SCENES))
    return HEAD + "\n".join(row(name) for name in [*names, *corpus.searched()]) + "\n"


if __name__ == "__main__":
    PAGE.write_text(table())
