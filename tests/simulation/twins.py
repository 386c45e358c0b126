"""The same life twice: once calm, and once with a crash of a controller at a seeded step. Both end the same way.

Users of such a life do only what determines the end: they scale, and write templates whose guests come up.
"""

from collections import Counter
from collections.abc import Collection
from random import Random
from typing import Any, Final

from msgspec.structs import replace

from controller.kubevirt import annotations as names
from tests.fakes.requests import Document
from tests.simulation.guests import GOOD
from tests.simulation.judge.replay import annotations
from tests.simulation.judge.sentence import Violation
from tests.simulation.life import last_write, until
from tests.simulation.objects import controller_uid, image_in, is_ready, member_of
from tests.simulation.story import BUSY_UNTIL_S, Act, Story, make_story
from tests.simulation.users import Users
from tests.simulation.world import POOLS, SETS, World, run_world

NAME: Final = "a_crash_leads_to_the_same_end"
SURE: Final = ("create", "scale", "template", "annotate", "change_field", "live_change", "undo")
CALM_S, PATIENCE_S = 310.0, 900.0
"""A migration that has failed is tried again after five minutes."""

EVERY: Final = 20
"""The share of the seeds whose life is lived twice."""


def same_end(seed: int) -> list[Violation] | None:
    """A crash of a controller leads to the same end as no crash."""
    chance, story = Random(f"{seed} twin"), make_story(seed)
    good = _images_that_come_up(story)
    acts = tuple(each for each in story.acts if each.what in SURE and _is_good(each, good))
    what = (chance.randrange(2), int(10 ** chance.uniform(0, 3.2)), round(chance.uniform(0.5, 30), 1))
    busy = [each.at for each in acts if each.what != "create"] or [30.0]
    crash = Act(chance.choice(busy) + 0.05, "crash_at_step", ("", "", *what))
    with_crash = tuple(sorted((*acts, crash), key=lambda act: act.at))
    one, other = (_end(replace(story, acts=each)) for each in (acts, with_crash))
    if one is None or other is None:
        return None  # such a life has no end to compare
    return [
        Violation(NAME, crash.at, owner, f"{one[owner]}, and with {crash}: {other.get(owner)}")
        for owner in one
        if one[owner] != other.get(owner)
    ]


def _images_that_come_up(story: Story) -> tuple[str, ...]:
    """If a set or pool replaces a guest that is not ready after 10 s, or returns after 20 s, chance decides whether a
    slow guest comes up.
    """
    settings = [dict([act.args[2:4]]) for act in story.acts if act.what == "annotate"]
    settings += [act.args[2]["annotations"] for act in story.acts if act.what == "create"]
    is_impatient = any(each.get(names.REPLACE_UNREADY_AFTER) == "10" for each in settings)
    is_impatient |= any(each.get(names.PROGRESS_DEADLINE) == "20" for each in settings)
    return tuple(each for each in GOOD if each != "slow" or not is_impatient)


def _is_good(act: Act, good: Collection[str]) -> bool:
    images = [each for each in act.args[2:3] if act.what == "template"]
    images += [act.args[2]["image"]] if act.what == "create" else []
    return all(image in good for image in images)


def _end(story: Story) -> dict[str, str] | None:
    """Where the life ends, for each set and pool. None if it does not come to rest."""

    async def live(world: World) -> dict[str, str] | None:
        users = Users(world, Random(f"{story.seed} users"))
        for act in story.acts:
            await until(world, act.at)
            users.carry_out(act)
        await until(world, BUSY_UNTIL_S)
        while world.loop.time() < BUSY_UNTIL_S + PATIENCE_S:
            await until(world, world.loop.time() + 20)
            if world.loop.time() - last_write(world) > CALM_S:
                return {
                    name: _facts(world, kind, owner)
                    for kind, resource in (("pool", POOLS), ("set", SETS))
                    for name, owner in world.everywhere(resource).items()
                    if not _depends_on_time(owner)
                }
        return None

    return run_world(story.seed, live, story.options)[1]


def _depends_on_time(owner: Document) -> bool:
    """True if the work before the last pause remains, if all VMs that a scale-out has made stay, if a partition keeps
    the template of those ordinals that the scale-ins have left, which depends on UIDs, or if a wrong value lets each VM
    drain for ten minutes.
    """
    notes = annotations(owner)
    is_slow = not notes.get(names.DRAIN_SECONDS, "0").isdigit()
    return bool(owner["spec"].get("paused")) or is_slow or not {names.SCALE_IN, names.PARTITION}.isdisjoint(notes)


def _facts(world: World, kind: str, owner: Document) -> str:
    members = [
        each for each in world.everywhere(member_of(kind)).values() if controller_uid(each) == owner["metadata"]["uid"]
    ]
    status: dict[str, Any] = owner.get("status") or {}
    conditions = sorted(each["type"] for each in status.get("conditions") or () if each["status"] == "True")
    # Without restarts, a member keeps the template of its creation, so the times of the creates count.
    is_capped = names.MOST_DISRUPTIVE in annotations(owner)
    is_updated = not is_capped if kind == "pool" else names.ROLLING_UPDATE in annotations(owner)
    images = sorted(Counter(image_in(kind, each["spec"]) for each in members).items()) if is_updated else "any images"
    counts = f"{len(members)} of {owner['spec']['replicas']}, {sum(map(is_ready, members))} ready"
    return f"{counts}, {images}, {status.get('printableStatus')}, {conditions}"
