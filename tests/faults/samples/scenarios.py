"""The scenarios. A scenario is a value: what users do to a few objects, and what must follow.

Each run of a scenario has its own namespace. The objects in the field `given` exist before the faults begin, and the
controller has finished its work on them. Then users act in steps. Each step ends when its condition holds.
"""

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from tests.faults.samples.objects import Json, Objects
from tests.faults.samples.view import User

Act: TypeAlias = Callable[[User], Awaitable[Any]]
Condition: TypeAlias = Callable[[Objects], bool]

QUICK = {"sim.vmherd.dev/ready-after": "20ms"}
BEHAVIOR = "sim.vmherd.dev/behavior"


class Step(Struct, frozen=True):
    """What a user does, and the condition that must hold afterwards."""

    act: Act
    until: Condition


class Scenario(Struct, frozen=True, kw_only=True):
    """A scenario. `name` begins with its kind: `set-` or `pool-`."""

    name: str
    given: tuple[tuple[str, Json], ...] = ()
    """The resource and the manifest of each object that exists before the faults."""

    ready: Condition = lambda _objects: True
    """The condition that holds before the first step."""

    steps: tuple[Step, ...]


def scenario(name: str, given: tuple[str, Json] | None, ready: Condition | None, *steps: Step) -> Scenario:
    """A scenario with at most one given object."""
    before = Scenario(name=name, steps=steps)
    return replace(before, given=(given,), ready=ready) if given and ready else before


def scenarios() -> tuple[Scenario, ...]:
    """All scenarios, in the order of their names."""
    from tests.faults.samples.pool_scenarios import POOL_SCENARIOS  # noqa: PLC0415 - they import this module
    from tests.faults.samples.set_scenarios import SET_SCENARIOS  # noqa: PLC0415

    return tuple(sorted((*SET_SCENARIOS, *POOL_SCENARIOS), key=lambda scenario: scenario.name))
