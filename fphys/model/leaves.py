"""The groups of a model's leaves, by MuJoCo's prefixes: ``body_mass`` is ``model.body.mass``."""

import jax

from ..tree import Tree, pytree

Array = jax.Array


@pytree
class Options(Tree):
    timestep: Array  # Time step [s], shape (1 | world,).
    gravity: Array  # Gravity [m/s^2], shape (1 | world, 3).
    magnetic: Array  # Magnetic flux density of the surroundings [T], shape (1 | world, 3).
    wind: Array  # Velocity of the medium [m/s], shape (1 | world, 3).
    # Without density and viscosity there is no medium, and neither has a gradient: start from a small positive value.
    density: Array  # Density of the medium [kg/m^3], shape (1 | world,).
    viscosity: Array  # Viscosity of the medium [Pa s], shape (1 | world,).
    impratio: Array  # Ratio of frictional to normal constraint impedance, shape (1 | world,).
    tolerance: Array  # Solver tolerance, shape (1 | world,).
    # Distance beyond the margin over which contacts fade in [m]: see fphys.softened. MuJoCo has none.
    softness: Array  # shape (1 | world,).
    meaninertia: (
        Array  # Mean diagonal of the mass matrix [kg or kg m^2], scales the tolerance; derived, shape (1 | world,).
    )


@pytree
class Body(Tree):
    pos: Array  # Position in the parent's frame [m], shape (1 | world, body, 3).
    quat: Array  # Orientation in the parent's frame (w, x, y, z), shape (1 | world, body, 4).
    ipos: Array  # Centre of mass in the body's frame [m], shape (1 | world, body, 3).
    iquat: Array  # Principal axes in the body's frame (w, x, y, z), shape (1 | world, body, 4).
    mass: Array  # Mass [kg], shape (1 | world, body).
    inertia: Array  # Principal moments of inertia [kg m^2], shape (1 | world, body, 3).
    gravcomp: Array  # Fraction of gravity compensated, shape (1 | world, body).
    invweight0: Array  # Mean inverse inertia at qpos0, translation and rotation; derived, shape (1 | world, body, 2).


@pytree
class Joint(Tree):
    pos: Array  # Anchor in the body's frame [m], shape (1 | world, joint, 3).
    axis: Array  # Axis in the body's frame, unit, shape (1 | world, joint, 3).
    stiffness: Array  # Spring stiffness [N/m or N m/rad], shape (1 | world, joint).
    range: Array  # Limits [m or rad]; for a ball joint the second is its greatest angle, shape (1 | world, joint, 2).
    margin: Array  # Distance from a limit at which it begins to act [m or rad], shape (1 | world, joint).
    solref: Array  # Reference of the limit's constraint, as a geom's, shape (1 | world, joint, 2).
    solimp: Array  # Impedance of the limit's constraint, shape (1 | world, joint, 5).
    actfrcrange: Array  # Range of the sum of the actuators' forces [N or N m], shape (1 | world, joint, 2).


@pytree
class Dof(Tree):
    armature: Array  # Rotor inertia [kg or kg m^2], shape (1 | world, dof).
    damping: Array  # Viscous damping [N s/m or N m s/rad], shape (1 | world, dof).
    frictionloss: Array  # Dry friction [N or N m]; acts where it is positive at loading, shape (1 | world, dof).
    solref: Array  # Reference of the friction's constraint, as a geom's, shape (1 | world, dof, 2).
    solimp: Array  # Impedance of the friction's constraint, shape (1 | world, dof, 5).
    invweight0: Array  # Diagonal of the inverse mass matrix at qpos0; derived, shape (1 | world, dof).


@pytree
class Geom(Tree):
    pos: Array  # Position in the body's frame [m], shape (1 | world, geom, 3).
    quat: Array  # Orientation in the body's frame (w, x, y, z), shape (1 | world, geom, 4).
    size: Array  # MuJoCo's size parameters [m], shape (1 | world, geom, 3).
    friction: Array  # Sliding [-], torsional [m], rolling [m] friction, shape (1 | world, geom, 3).
    solref: Array  # Reference (time constant [s], damping ratio; or -stiffness, -damping), shape (1 | world, geom, 2).
    solimp: Array  # Constraint impedance, shape (1 | world, geom, 5).
    solmix: Array  # Weight when two geoms' parameters are mixed, shape (1 | world, geom).
    margin: Array  # Distance below which a contact acts [m]; a pair's is the sum of two, shape (1 | world, geom).
    gap: Array  # Distance beyond the margin in which a contact is reported without force [m], shape (1 | world, geom).
    # Forces of the medium on its ellipsoid, if the first is positive at loading: their scale; coefficients of blunt,
    # slender and angular drag, of Kutta's and Magnus's lift; and, derived, the volume of medium [m^3] that it carries
    # along each axis, and that volume's second moments [m^5].
    fluid: Array  # shape (1 | world, geom, 12).


@pytree
class HeightField(Tree):
    size: Array  # Half of the width along x and y, scale of the heights, depth of the base [m], (1 | world, hfield, 4).
    data: Array  # Heights in units of the scale, row by row along y, field after field, (1 | world, height).


@pytree
class Pair(Tree):
    """Contacts between two geoms that the file names; these parameters replace those of the geoms."""

    friction: Array  # Two sliding [-], torsional [m], two rolling [m] coefficients, shape (1 | world, pair, 5).
    solref: Array  # Reference of the contact, as a geom's, shape (1 | world, pair, 2).
    solreffriction: Array  # Reference along the tangents of an elliptic cone; zero: solref, shape (1 | world, pair, 2).
    solimp: Array  # Impedance of the contact, shape (1 | world, pair, 5).
    margin: Array  # Distance below which the contact acts [m], shape (1 | world, pair).
    gap: Array  # Distance beyond the margin in which it is reported without force [m], shape (1 | world, pair).


@pytree
class Equality(Tree):
    data: Array  # MuJoCo's eq_data: anchors, relative pose, torque's scale; or coefficients, (1 | world, equality, 12).
    solref: Array  # Reference of the constraint, as a geom's, shape (1 | world, equality, 2).
    solimp: Array  # Impedance of the constraint, shape (1 | world, equality, 5).


@pytree
class Site(Tree):
    pos: Array  # Position in the body's frame [m], shape (1 | world, site, 3).
    quat: Array  # Orientation in the body's frame (w, x, y, z), shape (1 | world, site, 4).


@pytree
class Tendon(Tree):
    coef: Array  # Coefficient of a joint [m or m/rad], divisor of a pulley; else unused, shape (1 | world, wrap).
    stiffness: Array  # Stiffness [N/m], shape (1 | world, tendon).
    damping: Array  # Damping [N s/m], shape (1 | world, tendon).
    armature: Array  # Inertia that moves with the length [kg]; acts if not zero at loading, (1 | world, tendon).
    lengthspring: Array  # Rest length interval [m]; derived if the file gives none, shape (1 | world, tendon, 2).
    # 1 where the rest length follows from the geometry, 0 where the file or Model.replace gave it.
    follows: Array  # shape (1 | world, tendon).
    range: Array  # Limits of the length [m], shape (1 | world, tendon, 2).
    margin: Array  # Distance from a limit at which it begins to act [m], shape (1 | world, tendon).
    solref_lim: Array  # Reference of the limit's constraint, as a geom's, shape (1 | world, tendon, 2).
    solimp_lim: Array  # Impedance of the limit's constraint, shape (1 | world, tendon, 5).
    frictionloss: Array  # Dry friction [N]; acts where it is positive at loading, shape (1 | world, tendon).
    solref_fri: Array  # Reference of the friction's constraint, as a geom's, shape (1 | world, tendon, 2).
    solimp_fri: Array  # Impedance of the friction's constraint, shape (1 | world, tendon, 5).
    length0: Array  # Length at qpos0 [m]; derived, shape (1 | world, tendon).
    invweight0: Array  # Inverse inertia along the tendon at qpos0; derived, shape (1 | world, tendon).
    actfrcrange: Array  # Range of the sum of the actuators' forces [N], shape (1 | world, tendon, 2).


@pytree
class Actuator(Tree):
    gear: Array  # Transmission gear, shape (1 | world, actuator, 6).
    gainprm: Array  # Gain parameters (affine: first three; muscle: all), shape (1 | world, actuator, 9).
    biasprm: Array  # Bias parameters (affine: first three; muscle: all), shape (1 | world, actuator, 9).
    dynprm: Array  # Activation dynamics (first: time constant [s]), shape (1 | world, actuator, 3).
    cranklength: Array  # Length of a slider-crank's rod [m], shape (1 | world, actuator).
    lengthrange: Array  # Range of a muscle's length [m], not derived, shape (1 | world, actuator, 2).
    acc0: Array  # Acceleration caused by a unit force at qpos0, derived for muscles, shape (1 | world, actuator).
    ctrlrange: Array  # Range of the control, shape (1 | world, actuator, 2).
    forcerange: Array  # Range of the force [N or N m], shape (1 | world, actuator, 2).
    actrange: Array  # Range of the activation, shape (1 | world, actuator, 2).


@pytree
class Keyframes(Tree):
    """Named states of the file; each leaf's leading axis counts keyframes, not worlds."""

    has_no_worlds = True  # fphys.distributed copies them to every device

    qpos: Array  # shape (key, nq)
    qvel: Array  # shape (key, nv)
    act: Array  # shape (key, na)
    ctrl: Array  # shape (key, nu)
    time: Array  # shape (key,)
    mocap_pos: Array  # shape (key, nmocap, 3)
    mocap_quat: Array  # shape (key, nmocap, 4)
