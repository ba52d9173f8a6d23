"""The programs that ``fphys run NAME`` runs, one module each.

The module of an experiment has a frozen dataclass ``Config``, with a docstring for each field, and a function
``main(config, run) -> dict``. It returns the metrics, and puts its files into the :class:`fphys.runs.Run`. A metric
``success`` says whether the goal is reached. Experiments with random numbers have a field ``seed: int = 0``.
A ``Config`` refuses what cannot be (:func:`expect_positive`) as it is made, so that a refused run leaves no folder.
"""

import dataclasses
import difflib
import importlib
from types import ModuleType
from typing import Any

EXPERIMENTS = {
    "swing-up": "a double pendulum swings up, its torques found by gradient through the simulation",
    "reach": "a seven-joint arm reaches a target, its trajectory found by gradient",
    "identify": "a robot's masses and joint friction are found from a recorded motion",
    "throw": "a ball bounces off a wall onto a target, its throw found by gradient through the bounce",
    "identify-contact": "a contact's friction and restitution are found from a recorded slide and bounce",
    "push": "a seven-joint arm pushes a box to a pose, its motion found by gradient through the contacts",
    "walk": "a quadruped walks, its gait found by gradient through the contacts of its feet",
    "stiffness": "a soft block's stiffness is found from a recorded fall, by gradient through its particles",
    "soft-throw": "a soft ball bounces off the floor into a target, its throw found by gradient through its particles",
    "soft-walk": "a soft body walks, what its muscles do found by gradient through its particles",
    "jet": "a jet of water is shaped so that it lands in a bucket, by gradient through its particles",
    "nozzle": "a nozzle is shaped so that its jet lands in a bucket, by gradient through particles and walls",
    "pour": "ten thousand particles of water are poured into a box and settle level",
    "dam-break": "a dam breaks, and fifty thousand particles of water meet a block",
    "hourglass": "sand in three colours runs through an hourglass",
    "jelly": "balls and cubes of jelly fall into a tray and pile up",
    "drape": "a cloth falls on a ball and stays there",
    "cable": "a hanging cable is led through a ring, its end and length found by gradient",
    "identify-elastic": "the stiffness of every element of a plate is found from a recorded motion, by gradient",
    "fold": "a cloth is folded in half, the motion of its edge found by gradient",
    "soft-arm": "a soft arm reaches targets, the pressures in its chambers found by gradient",
    "mix": "all five solvers in one scene: a paddle, water, floating wood and rubber, sand in a cloth, a falling ball",
    "pour-cup": "a cup pours a given volume of water into another, its angle found in worlds side by side",
    "scoop": "a scoop lifts a given mass of sand, its depth found in worlds side by side",
    "swim": "an eel of five links learns to swim, its gait found by gradient through links and water",
    "catch": "a cloth catches a thrown ball, the motion of its holders found by gradient",
    "stir": "an arm stirs water so that a floating ball reaches a corner, its motion found by gradient",
    "contact-gradients": "exact gradients, softened contacts and contacts from distance are compared",
    "scaling": "the speed of a training on up to 10,000 devices is predicted, and how often it should save",
    "classify": "digits, MNIST or CIFAR-10 are classified by a perceptron or a convolutional network",
    "autoencode": "digits are compressed and drawn again by a variational autoencoder",
    "generate-text": "an LSTM or GPT learns a text, character by character, and continues it",
    "dqn": "a pole is balanced on a cart by deep Q-learning, in one compiled loop",
    "train-resnet": "ResNet learns a folder of images in ImageNet's layout",
    "classify-image": "ResNet, with a file of weights, says what is in pictures",
}
"""Name of each experiment → what it does, in one line."""


def load(name: str) -> ModuleType:
    """The module of an experiment."""
    if name not in EXPERIMENTS:
        near = difflib.get_close_matches(name.lower().replace("_", "-"), EXPERIMENTS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(EXPERIMENTS)}"
        raise ValueError(f"there is no experiment {name!r}: {hint}")
    return importlib.import_module(f"{__name__}.{name.replace('-', '_')}")


def expect_positive(config: Any, *zero: str) -> None:
    """Refuse a configuration with a number that is not positive; the seed and those of ``zero`` may be 0.

    Raises:
        ValueError: naming the option.
    """
    for field in dataclasses.fields(config):
        value, may = getattr(config, field.name), field.name in ("seed", *zero)
        if isinstance(value, int | float) and not isinstance(value, bool) and not (value >= 0 if may else value > 0):
            option = f"--{field.name.replace('_', '-')}"
            raise ValueError(f"{option} is {value}: it must be {'0 or more' if may else 'positive'}")
