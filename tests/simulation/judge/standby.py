"""Sentences about VMs that wait on standby beside the wanted ones."""

from collections.abc import Iterator
from typing import Final

from controller.kubevirt import annotations as names
from controller.kubevirt.resources import DATA_VOLUMES, PVCS, VMIS, VMS
from tests.fakes.requests import Document
from tests.simulation.judge.counts import standbys_of
from tests.simulation.judge.harm import stop_mark
from tests.simulation.judge.replay import (
    annotations,
    is_disturbed,
    is_leaving,
    name_of,
    owner_by_name,
    replay,
    scales_in,
)
from tests.simulation.judge.sentence import Found, sentence
from tests.simulation.life import Life
from tests.simulation.objects import controller_uid, is_on_standby, is_ready, standby_mark
from tests.simulation.world import POOLS

STOPPED: Final = "Halted"


@sentence
def a_standby_never_serves(life: Life) -> Iterator[Found | None]:
    """A standby is out of its Services from its creation until it is woken."""
    for state, change in replay(life):
        vm, vmi = state.get(VMS, change.key), change.after
        if change.resource is not VMIS or vm is None or vmi is None or not is_ready(vmi) or is_leaving(vmi):
            continue  # a Pod that ends is in no Service
        mark = standby_mark(vm)
        if not is_on_standby(vm) or state.owner_of(vm) is None or controller_uid(vmi) != vm["metadata"]["uid"]:
            continue
        yield None
        is_user = vm["spec"].get("runStrategy") != STOPPED and mark == "resting"  # its user has started it
        is_in_service = (vmi["metadata"].get("labels") or {}).get(names.IN_SERVICE) == "true"
        held = {names.BUSY_UNTIL, names.CLAIMED_BY} & (annotations(vm).keys() | annotations(vmi).keys())
        if is_in_service and not is_user and not held and not is_disturbed(life, change.at):
            text = f"{change.key.name} is ready and in service as {mark}"
            yield change.at, owner_by_name(life, change.key.name), text


@sentence
def nothing_that_serves_is_stopped_for_a_standby(life: Life) -> Iterator[Found | None]:
    """Running VMs are never fewer because of standbys: a VM is laid to rest only if it was made for it, or if it is
    surplus in a pool that reuses VMs, and if nothing says stop.
    """
    for state, change in replay(life):
        if not change.is_ours or change.resource is not VMS or change.before is None or is_leaving(change.last):
            continue
        before, after = change.before["spec"].get("runStrategy"), change.last["spec"].get("runStrategy")
        if after != STOPPED or before == STOPPED:
            continue
        yield None
        why = stop_mark(state, change)
        owner = state.owner_of(change.before)
        is_reused = owner is not None and annotations(owner).get(names.REUSE) == "true"
        if not is_on_standby(change.before) and not (
            is_reused and owner is not None and scales_in(state, owner, change.at)
        ):
            why = why or "it was no standby"
        if why and not is_disturbed(life, change.at):
            yield change.at, owner_by_name(life, change.key.name), f"{change.key.name} was stopped although {why}"


@sentence
def a_standby_is_no_more_than_asked_for(life: Life) -> Iterator[Found | None]:
    """At the end, as many VMs rest as the pool asks for and has room for."""
    if life.rested_at is None:
        return
    for key, owner in life.world.everywhere(POOLS).items():
        if "deletionTimestamp" in owner["metadata"] or names.STANDBY not in annotations(owner):
            continue
        yield None
        every = [
            each for each in life.world.everywhere(VMS).values() if controller_uid(each) == owner["metadata"]["uid"]
        ]
        resting = [each for each in every if is_on_standby(each)]
        room = life.story.options.max_replicas - owner["spec"]["replicas"]
        wanted = min(standbys_of(owner), max(room, 0))
        disks = [each for kind in (DATA_VOLUMES, PVCS) for each in life.world.everywhere(kind).values()]
        waits = any(
            {names.KEPT_FOR, names.USED_FOR} & {*(each["metadata"].get("labels") or {})} for each in disks
        )  # a user decides (P5)
        if len(resting) > wanted or (len(resting) < wanted and not waits):
            text = f"{len(resting)} of {wanted} rest: {', '.join(sorted(map(name_of, resting)))}"
            yield life.ended_at, key, text


@sentence
def only_a_marked_standby_is_paused(life: Life) -> Iterator[Found | None]:
    """A VMI is paused through our doing only if its VM has the mark, and at the end only if its VM rests."""
    for state, change in replay(life):
        is_pause = change.resource is VMIS and _is_paused(change.after) and not _is_paused(change.before)
        if not is_pause or change.actor != "kubevirt":
            continue
        yield None
        mark, name = annotations(state.get(VMS, change.key)).get(names.STANDBY_STATE, ""), change.key.name
        if not mark.startswith(("pausing", "paused ", "woken ")) and not is_disturbed(life, change.at):
            yield change.at, owner_by_name(life, name), f"{name} was paused with the mark {mark!r}"
    for name, vmi in life.world.everywhere(VMIS).items() if life.rested_at is not None else ():
        vm = life.world.everywhere(VMS).get(name)
        if _is_paused(vmi) and vm is not None and life.world.everywhere(POOLS):
            yield None
            if standby_mark(vm) != f"paused {vmi['metadata']['uid']}":
                yield life.ended_at, owner_by_name(life, name), f"{name} stays paused, and is no standby"


def _is_paused(vmi: Document | None) -> bool:
    conditions = ((vmi or {}).get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Paused" for each in conditions)
