"""Piles of 64 bodies with elliptic cones, equalities and tendons: what MuJoCo finds, without matrices."""

import itertools
import re

import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import fphys
from fphys.errors import ModelError
from fphys.model.memory import with_less

from .test_sparse import FORWARD, close, elliptic, pile, settled, state_of

BODIES = 64
DOORS = "".join(
    f'<body pos="{0.3 * k} -1 0.5"><joint name="j{k}" axis="0 {k % 2} {1 - k % 2}" damping="0.1"/><geom size="0.1"/>'
    f'<body pos="0 0 0.2"><joint name="i{k}" type="ball" limited="true" range="0 10"/>'
    '<geom type="capsule" size="0.03" fromto="0 0 0 0.2 0 0"/></body></body>'
    for k in range(8)
)


def tied(more: str) -> str:
    """A pile whose bodies b0, b1 ... have sites s0, s1 ... at their upper ends, and doors on hinges j0, j1 ..."""
    number = itertools.count()
    named = re.sub("<body pos", lambda _: f'<body name="b{next(number)}" pos', pile((4, 4, 4), "auto"))
    number = itertools.count()
    sited = re.sub("<freejoint/>", lambda _: f'<freejoint/><site name="s{next(number)}" pos="0 0 0.1"/>', named)
    return sited.replace("</worldbody>", f"{DOORS}</worldbody>{more}")


def every(text: str, step: int) -> str:
    """A line for every so many bodies, of two that are not beside each other."""
    return "".join(text.format(a=k, b=(7 * k + 5) % BODIES) for k in range(0, BODIES, step))


SOFT = "solref='0.1 1'"
CONNECTED = every(f"<connect site1='s{{a}}' site2='s{{b}}' {SOFT}/>", 8)
WELDED = every(f"<weld body1='b{{a}}' body2='b{{b}}' {SOFT}/>", 8)
LINES = every("<spatial name='t{a}' limited='true' range='0 0.6'><site site='s{a}'/><site site='s{b}'/></spatial>", 4)
SUM = "<joint joint='j0' coef='0.5'/><joint joint='j5' coef='-2'/>"
PILES = {
    "elliptic": elliptic(pile((4, 4, 4), "auto")),
    "connect": tied(f"<equality>{CONNECTED}</equality>"),
    "weld": tied(f"<equality>{WELDED}</equality>"),
    "joint": tied('<equality><joint joint1="j0" joint2="j3" polycoef="0.1 0.5 1 0 0"/><joint joint1="j4"/></equality>'),
    "tendon": tied(
        f"<tendon>{LINES}<fixed name='f' limited='true' range='0 0.01'>{SUM}</fixed></tendon>"
        f"<equality><tendon tendon1='f' tendon2='t4' {SOFT}/><tendon tendon1='t8' {SOFT}/></equality>"
    ),
}


@pytest.mark.parametrize("name", PILES)
def test_accelerations_of_large_piles_are_mujocos(name: str) -> None:
    m, d = settled(PILES[name], 60)
    model = fphys.load(m)
    assert model.structure.sparse and m.nv >= 6 * BODIES
    qacc, info = FORWARD(model, state_of(model, d))
    assert int(info.status[0]) == 0
    assert int((info.contacts.pair >= 0).sum()) == d.ncon >= 50
    close(qacc[0], d.qacc, 1e-10)
    assert not np.allclose(jnp.asarray(d.qacc), d.qacc_smooth, atol=1e-3)


def test_working_memory_that_a_machine_does_not_give_is_asked_for_in_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the machine gave no more than 2 GB."""
    compile = mujoco.MjSpec.compile

    def scarce(spec: mujoco.MjSpec) -> mujoco.MjModel:
        if spec.memory < 0:
            raise ValueError("engine error: Could not allocate memory")
        return compile(spec)

    xml = "<mujoco>{}<worldbody><body><freejoint/><geom size='1'/></body></worldbody></mujoco>"
    monkeypatch.setattr(mujoco.MjSpec, "compile", scarce)
    assert fphys.load(mujoco.MjSpec.from_string(xml.format(""))).structure.source.narena == 2**30
    with pytest.raises(ModelError, match="MjSpec: Could not allocate memory: ask for less than 64"):
        with_less(mujoco.MjSpec.from_string(xml.format("<size memory='64'/>")), "MjSpec")
