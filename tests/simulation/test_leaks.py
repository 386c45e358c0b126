"""A controller keeps nothing of the sets and pools that are gone: no object, task or series, however long it runs."""

import asyncio
import gc
from random import Random
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, Final

import pytest

from tests.simulation.examples import birth
from tests.simulation.story import Act
from tests.simulation.users import Users
from tests.simulation.world import Options, World, run_world

GLOBAL: Final = (ModuleType, BuiltinFunctionType, type)
EACH, ROUNDS, WARM_UP = 10, 4, 1
"""The sets of a round, which has as many pools; the rounds; and the round after which the bounded memories are full."""

FORGOTTEN_S: Final = 1800.0
"""After this time, the controller has forgotten the Events of an object that is gone."""


def kept(world: World) -> int:
    """The number of objects that the tasks of the controller reach, without the globals of modules and the world."""
    gc.collect()
    found: dict[int, Any] = {}
    todo: list[Any] = [task for replica in world.replicas if replica._process for task in replica._process.tasks]
    while todo:
        each = todo.pop()
        if id(each) in found or isinstance(each, GLOBAL) or type(each).__module__.startswith("tests."):
            continue
        found[id(each)] = each
        todo += (each.__closure__ or ()) if isinstance(each, FunctionType) else gc.get_referents(each)
    return len(found)


async def churned(world: World) -> list[int]:
    """Make, update and delete sets and pools with new names in each round. Return what is kept after each round."""
    users, found = Users(world, Random(1)), []
    for number in range(ROUNDS):
        herds = [(kind, f"{kind}-{number}-{each}") for kind in ("set", "pool") for each in range(EACH)]
        for herd in herds:
            users.carry_out(birth(*herd, replicas=1))
        await asyncio.sleep(30)
        for herd in herds:
            users.carry_out(Act(0.0, "template", (*herd, "v2")))
        await asyncio.sleep(60)
        for herd in herds:
            users.carry_out(Act(0.0, "delete_owner", (*herd, "Background")))
        await asyncio.sleep(FORGOTTEN_S)
        found.append(kept(world))
    return found


@pytest.mark.long
def test_nothing_is_kept_of_sets_and_pools_that_are_gone() -> None:
    world, found = run_world("leaks", churned, Options(standby=False))
    assert world.errors == []
    gone = 2 * EACH * (ROUNDS - 1 - WARM_UP)
    assert found[-1] - found[WARM_UP] < gone, f"objects after each round: {found}"
