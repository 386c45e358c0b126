"""One life: a story in a world, until the world is at rest. The judge reads the result."""

import asyncio
from random import Random
from typing import Any, Final

from msgspec import Struct

from controller.events.event import EVENTS
from controller.kubevirt.annotations import ADOPTED_TEMPLATE, ROLLED_BACK
from controller.leaderelection.lease import LEASES
from tests.fakes.requests import Document
from tests.simulation.faults import Faults
from tests.simulation.moments import Moment, moments_of
from tests.simulation.objects import controller_uid, image_in, is_beside, is_ready, member_of, standby_mark, template_of
from tests.simulation.server import Asked, Change
from tests.simulation.story import BUSY_UNTIL_S, Story
from tests.simulation.users import LAST_IMAGE, Users
from tests.simulation.world import POOLS, SETS, World, run_world

CALM_S: Final = 40.0
"""The world is at rest if nothing has changed for this time in seconds."""

PATIENCE_S: Final = 1200.0
"""The longest time, in seconds, until the work must be finished after the end of the faults."""

WATCHED_S: Final = 90.0
"""How long the world is watched at rest, and again after a restart of the controllers, in seconds."""

NOISE: Final = (LEASES, EVENTS)


class Life(Struct):
    """What happened in a life, and where it ended. All times are seconds of the life."""

    story: Story
    changes: list[Change]
    asked: list[Asked]
    faults: Faults
    errors: list[str]
    moments: list[Moment]
    history: str
    rested_at: float | None
    """When the world came to rest after the end of the faults. None if it did not."""

    restarted_at: float
    ended_at: float
    world: Any = None


def run_life(story: Story) -> Life:
    """Run a story to its end. Take moments again and again while users act, and one at the end."""

    async def live(world: World) -> Life:
        users = Users(world, Random(f"{story.seed} users"))
        moments: list[Moment] = []
        every = Random(f"{story.seed} moments").uniform(28, 42)

        def look() -> None:
            moments.extend(moments_of(world))
            if world.loop.time() + every < BUSY_UNTIL_S:
                world.loop.call_later(every, look)

        world.loop.call_later(every, look)
        for act in story.acts:
            await until(world, act.at)
            users.carry_out(act)
        await until(world, BUSY_UNTIL_S)
        users.end_faults()
        has_stalls = any(act.what == "fault" and act.args[0] in ("stall-list", "silent") for act in story.acts)
        rested = await _rest(world, CALM_S + STALL_S * has_stalls)
        moments += moments_of(world)
        await asyncio.sleep(WATCHED_S)
        restarted = world.loop.time()
        for replica in world.replicas:
            replica.crash(0.5)
        await asyncio.sleep(WATCHED_S)
        return Life(
            story=story,
            changes=world.server.changes,
            asked=world.server.asked,
            faults=world.faults,
            errors=world.errors,
            moments=moments,
            history="",
            rested_at=rested,
            restarted_at=restarted,
            ended_at=world.loop.time(),
        )

    world, life = run_world(story.seed, live, story.options)
    life.history, life.world = world.history_hash(), world
    return life


async def until(world: World, at: float) -> None:
    await asyncio.sleep(max(0.0, at - world.loop.time()))


STALL_S: Final = 120.0
"""The time after which a cache goes on whose list stalled, or whose watch sends nothing more."""


async def _rest(world: World, calm_s: float) -> float | None:
    """Wait until all sets and pools are as their specs ask and nothing changes for `calm_s`. Return None if this never
    happens.
    """
    end = world.loop.time() + PATIENCE_S
    while world.loop.time() < end:
        await asyncio.sleep(5)
        last = max(last_write(world), BUSY_UNTIL_S)
        if world.loop.time() - last >= calm_s and not unfinished(world):
            return last
    return None


def last_write(world: World) -> float:
    """When a controller last wrote anything but its lease and Events."""
    ours = (each.at for each in reversed(world.server.changes) if each.is_ours and each.resource not in NOISE)
    return next(ours, 0.0)


def unfinished(world: World) -> list[str]:
    """What is not yet as the specs ask, in words."""
    found = []
    for kind, resource in (("pool", POOLS), ("set", SETS)):
        for name, owner in world.everywhere(resource).items():
            members = world.everywhere(member_of(kind)).values()
            own = [each for each in members if controller_uid(each) == owner["metadata"]["uid"]]
            found += _unfinished(kind, name, owner, [each for each in own if not is_beside(each)])
            found += [f"{kind} {name} prepares a standby" for each in own if is_beside(each) and not _rests(each)]
    return found


def _rests(vm: Document) -> bool:
    return vm["spec"].get("runStrategy") == "Halted" or standby_mark(vm).startswith("paused ")


def _unfinished(kind: str, name: str, owner: Document, members: list[Document]) -> list[str]:
    spec, status = owner["spec"], owner.get("status") or {}
    if "deletionTimestamp" in owner["metadata"]:
        return [f"{kind} {name} is still being deleted"]
    if status.get("observedGeneration") not in (owner["metadata"]["generation"], None):
        return [f"{kind} {name} is not observed"]
    wanted = image_in(kind, template_of(kind, owner)["spec"])
    noted = owner["metadata"].get("annotations") or {}
    # A VMI that was adopted counts as updated until the next template.
    is_first = noted.get(ADOPTED_TEMPLATE, "none") in status.get("currentRevision", "")
    images = [
        wanted if is_first and "-orphan-" in each["metadata"]["name"] else image_in(kind, each["spec"])
        for each in members
    ]
    counts = [len(members), sum(map(is_ready, members)), images.count(wanted)]
    if counts != [spec["replicas"]] * 3:
        template = template_of(kind, owner)
        notes = "" if LAST_IMAGE in str(template) else ", and an old template"
        notes += ", after a return" if ROLLED_BACK in noted else ""
        return [f"{kind} {name} has {counts} of {spec['replicas']}{notes}"]
    # KubeVirt's CRDs have no field for the updated ones.
    told = [status.get("readyReplicas") or 0, status.get("updatedReplicas", counts[2])]
    if told != counts[1:]:
        return [f"the status of {kind} {name} has {told} ready and updated, and {counts[1:]} are"]
    return []
