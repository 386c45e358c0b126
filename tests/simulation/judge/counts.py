"""Sentences about numbers: how many members are made, and which of them leave if there are too many."""

from collections.abc import Iterator
from typing import Final

from controller.kubevirt import annotations as names
from controller.kubevirt.resources import CONTROLLER_REVISIONS, VMIS, VMS
from informers.meta import ObjectKey
from tests.fakes.requests import Document
from tests.simulation.judge.harm import SEEN_S, most_unavailable, recent, stop_mark
from tests.simulation.judge.replay import (
    State,
    annotations,
    begins_to_leave,
    is_disturbed,
    is_leaving,
    name_of,
    replay,
)
from tests.simulation.judge.sentence import Found, sentence
from tests.simulation.life import Life
from tests.simulation.objects import controller_uid, is_on_standby, is_ready, rests_unmarked
from tests.simulation.server import Change
from tests.simulation.world import POOLS, SETS

FINAL: Final = ("Failed", "Succeeded")


@sentence
def no_more_is_made_than_is_missing(life: Life) -> Iterator[Found | None]:
    """No VM is created while as many exist as the spec, the surge, the standbys and the substitutes for lost VMs
    allow.
    """
    known: dict[str, dict[ObjectKey, float]] = {}
    most: dict[str, list[tuple[float, int]]] = {}
    asked: dict[str, list[tuple[float, int]]] = {}
    unready: dict[ObjectKey, float] = {}
    for state, change in replay(life):
        if change.resource in (POOLS, SETS) and change.after is not None:
            wanted = min(_wanted(change.after), life.story.options.max_replicas)
            most.setdefault(change.last["metadata"]["uid"], []).append((change.at, wanted))
            asked.setdefault(change.last["metadata"]["uid"], []).append((change.at, standbys_of(change.after)))
        if change.resource is VMIS and not (is_ready(change.before) and is_ready(change.after)):
            unready[change.key] = change.at
        if change.resource not in (VMS, VMIS):
            continue
        if (had := controller_uid(change.before or change.last)) != controller_uid(change.last):
            known.get(had, {}).pop(change.key, None)
        owner = state.owner_of(change.last)
        if owner is None or controller_uid(change.last) != (uid := owner["metadata"]["uid"]):
            continue
        seen = known.setdefault(uid, {})
        if change.is_ours and change.before is None:
            yield None
            old = [key for key, at in seen.items() if at < change.at - SEEN_S]
            count = 1 + sum(not _is_relabelled(state.get(change.resource, key), owner) for key in old)
            limit = max(value for _, value in recent(most[uid], change.at - SEEN_S))
            limit += _lost(state, owner, unready, change.at)
            limit += sum(_is_claimed(state, key, change.at) for key in state.of(VMS) if key in seen)
            marked = [state.get(VMS, key) for key in seen]
            rest = (each for each in marked if is_on_standby(each) or rests_unmarked(each))
            standbys = sum(names.CLAIMED_BY not in annotations(each) for each in rest)
            limit += standbys
            if is_on_standby(change.after):
                count, limit = 1 + standbys, max(value for _, value in recent(asked[uid], change.at - SEEN_S))
            # A new standby whose mark a policy takes off is deleted again. A VMI without its label is released later.
            stripped = {each.target for each in life.faults.all if each.kind == "strip" and each.start <= change.at}
            is_unmarked = bool(stripped & {names.STANDBY_STATE, "app"})
            if count > limit and not is_unmarked and not is_disturbed(life, change.at):
                yield change.at, name_of(owner), f"{change.key.name} was created as number {count} of {limit}"
        _note(seen, change, owner)


@sentence
def nothing_is_made_beside_restored_vms(life: Life) -> Iterator[Found | None]:
    """A pool that has never had a revision creates no VM while VMs without an owner have its first names and labels."""
    begun: set[str] = set()
    for state, change in replay(life):
        owner = state.owner_of(change.last) if change.resource is VMS and change.after is not None else None
        if owner is None or owner["metadata"]["uid"] in begun:
            continue
        begun.add(owner["metadata"]["uid"])
        first = {f"{name_of(owner)}-{ordinal}" for ordinal in range(owner["spec"]["replicas"])}
        others = [each for key, each in state.of(VMS).items() if key.name in first and key != change.key]
        labels = owner["spec"]["selector"]["matchLabels"].items()
        others = [each for each in others if labels <= each["metadata"].get("labels", {}).items()]
        unowned = [each for each in others if not controller_uid(each) and not is_leaving(each)]
        revisions = state.of(CONTROLLER_REVISIONS).values()
        own = [each for each in revisions if controller_uid(each) == owner["metadata"]["uid"]]
        first_at = min(map(_made_at, own), default="")
        if restored := [name_of(each) for each in unowned if _made_at(each) < first_at]:
            is_wrong = change.is_ours and change.before is None and not is_disturbed(life, change.at)
            text = f"{change.key.name} was created beside {', '.join(restored)}"
            yield (change.at, name_of(owner), text) if is_wrong else None


def _made_at(document: Document) -> str:
    made_at: str = document["metadata"]["creationTimestamp"]
    return made_at


def _wanted(owner: Document) -> int:
    """The number in the spec, with the surge of a rolling update."""
    wanted: int = owner["spec"]["replicas"]
    parts = annotations(owner).get(names.ROLLING_UPDATE, "").split(",")
    surge = next((part.partition("=")[2] for part in parts if part.startswith("maxSurge=")), "")
    number = surge.removesuffix("%")
    if not number.isdigit():
        return wanted
    return wanted + (int(number) if number == surge else -(-wanted * int(number) // 100))


def standbys_of(owner: Document) -> int:
    text, wanted = annotations(owner).get(names.STANDBY, "0"), owner["spec"]["replicas"]
    share = text.removesuffix("%")
    if not share.isdigit() or len(share) > 3:
        return 0
    return -(-wanted * int(share) // 100) if text.endswith("%") else int(share)


def _is_claimed(state: State, key: ObjectKey, now: float) -> bool:
    """True if the VM is claimed, or was a moment ago."""
    changed = state.marked.get((VMS, key, names.CLAIMED_BY))
    is_claimed = names.CLAIMED_BY in annotations(state.get(VMS, key))
    return is_claimed or (changed is not None and now - changed < SEEN_S)


def _lost(state: State, owner: Document, unready: dict[ObjectKey, float], now: float) -> int:
    """The number of substitutes that the VMs allow which are not ready, or were not a moment ago."""
    if names.SUBSTITUTE_LOST_AFTER not in annotations(owner):
        return 0
    keys = [ObjectKey(each["metadata"]["namespace"], name_of(each)) for each in state.members(owner)]
    away = [key for key in keys if not is_ready(state.get(VMIS, key)) or now - unready.get(key, 0.0) < SEEN_S]
    changed = state.owner_changed.get(ObjectKey(owner["metadata"]["namespace"], name_of(owner)), 0.0)
    return len(away) if now - changed < SEEN_S else min(len(away), most_unavailable(owner))


def _note(seen: dict[ObjectKey, float], change: Change, owner: Document) -> None:
    """Note since when the member counts. What we make ourselves counts at once."""
    after = change.after
    if after is None or is_leaving(after) or (change.resource is VMIS and _has_ended(after)):
        seen.pop(change.key, None)
    else:
        seen.setdefault(change.key, float("-inf") if change.is_ours else change.at)


def _is_relabelled(member: Document | None, owner: Document) -> bool:
    """True if the member does not match the selector any more: it is released, unless the server refuses that."""
    wanted = owner["spec"]["selector"]["matchLabels"].items()
    return member is not None and not wanted <= (member["metadata"].get("labels") or {}).items()


def _has_ended(vmi: Document | None) -> bool:
    """True if the VMI has finished, or its state is unknown."""
    status = (vmi or {}).get("status", {})
    reasons = [each.get("reason") for each in status.get("conditions") or () if each["type"] == "Ready"]
    return status.get("phase") in (*FINAL, "Unknown") or reasons == ["PodTerminating"]


@sentence
def few_are_substitutes(life: Life) -> Iterator[Found | None]:
    """At most `maxUnavailable` VMs are substitutes for lost VMs at a time."""
    most: dict[str, list[tuple[float, int]]] = {}
    made: set[str] = set()
    for state, change in replay(life):
        if change.resource is POOLS and change.after is not None:
            most.setdefault(change.last["metadata"]["uid"], []).append((change.at, most_unavailable(change.after)))
        is_made = change.is_ours and change.resource is VMS and change.before is None
        if not is_made or names.SUBSTITUTE not in annotations(change.after):
            continue
        owner = state.owner_of(change.last)
        if owner is not None:
            yield None
            made.add(change.last["metadata"]["uid"])
            own = [change.last, *(each for each in state.members(owner) if names.SUBSTITUTE in annotations(each))]
            count = sum(each["metadata"]["uid"] in made for each in own)
            limit = max(value for _, value in recent(most[owner["metadata"]["uid"]], change.at - SEEN_S))
            if count > limit and not is_disturbed(life, change.at):
                yield change.at, name_of(owner), f"{change.key.name} is substitute number {count} of {limit}"


@sentence
def finished_vms_leave_first(life: Life) -> Iterator[Found | None]:
    """If a pool of one-shot VMs has too many, no VM that runs leaves while one that has finished could leave."""
    ended: dict[ObjectKey, float] = {}
    for state, change in replay(life):
        vmi = change.after if change.resource is VMIS else None
        if (vmi or {}).get("status", {}).get("phase") in FINAL:
            ended.setdefault(change.key, change.at)
        elif change.resource is VMIS:
            ended.pop(change.key, None)
        owner = state.owner_of(change.last) if change.resource is VMS and begins_to_leave(change) else None
        if owner is None or is_leaving(owner) or not change.is_ours or change.key in ended:
            continue
        chosen = annotations(change.before)
        if annotations(owner).get(names.REPLACE_FINISHED) != "true" or {names.REMOVE, names.DRAINING} & chosen.keys():
            continue
        healed = annotations(owner).get(names.HEALED, "")
        members = [each for each in state.members(owner) if each["metadata"]["uid"] not in healed]  # those leave anyway
        if len(members) > owner["spec"]["replicas"] and is_ready(state.get(VMIS, change.key)):
            yield None
            first = [each for each in members if _could_leave(state, each, change, ended)]
            if first and not is_disturbed(life, change.at):
                yield change.at, name_of(owner), f"{change.key.name} was deleted, and {name_of(first[0])} has finished"


def _could_leave(state: State, vm: Document, deletion: Change, ended: dict[ObjectKey, float]) -> bool:
    key = ObjectKey(vm["metadata"]["namespace"], name_of(vm))
    runs_once = vm["spec"].get("runStrategy") == "Once"
    stays = stop_mark(state, deletion._replace(key=key, before=vm))
    return runs_once and deletion.at - ended.get(key, deletion.at) > SEEN_S and not stays
