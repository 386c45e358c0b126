"""Sentences about harm: what may never happen to the guests and disks of users through our doing."""

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from controller.kubevirt import annotations as names
from controller.kubevirt.resources import DATA_VOLUMES, PVCS, VMIS, VMS
from informers.meta import ObjectKey
from tests.fakes.requests import AnyResource, Document
from tests.simulation.claims import claims_of, is_terminating
from tests.simulation.judge.replay import (
    State,
    amount,
    annotations,
    asks_for_restart,
    begins_to_leave,
    is_disturbed,
    is_leaving,
    name_of,
    owner_by_name,
    replay,
    scales_in,
)
from tests.simulation.judge.sentence import Found, sentence
from tests.simulation.life import Life
from tests.simulation.objects import controller_uid, is_beside, is_on_standby, is_ready
from tests.simulation.server import Change
from tests.simulation.story import BUSY_UNTIL_S
from tests.simulation.world import BEGIN, POOLS, SETS

SEEN_S: Final = 3.0
"""A mark counts when it is this old, in seconds. A younger one may not have been seen."""

CLOCK_S: Final = 4.0
"""The clock of a controller may be ahead by less than this time in seconds."""


@sentence
def what_is_marked_stays(life: Life) -> Iterator[Found | None]:
    """Nothing with a mark that says stop is deleted or restarted."""
    for state, change in replay(life):
        if not change.is_ours or change.resource not in (VMS, VMIS):
            continue
        if not (begins_to_leave(change) or asks_for_restart(change)) or is_disturbed(life, change.at):
            continue
        yield None
        if why := stop_mark(state, change):
            owner = state.owner_of(change.before or {"metadata": {}})
            text = f"{change.resource.plural}/{change.key.name} was deleted or restarted although {why}"
            yield change.at, name_of(owner) if owner else change.key.name, text


def stop_mark(state: State, change: Change) -> str:
    before, now = change.before or {}, change.at
    is_final = before.get("status", {}).get("phase") in ("Failed", "Succeeded")
    vm, vmi = state.get(VMS, change.key), state.get(VMIS, change.key)
    is_protected = annotations(before).get(names.PROTECT, "false") != "false"
    age = now - state.marked.get((change.resource, change.key, names.PROTECT), now)
    if begins_to_leave(change) and is_protected and age > SEEN_S:
        return "it is protected"
    ended = is_final or (vmi is not None and vmi.get("status", {}).get("phase") in ("Failed", "Succeeded"))
    for resource, each in ((VMS, vm), (VMIS, vmi)):
        until = annotations(each).get(names.BUSY_UNTIL)
        age = now - state.marked.get((resource, change.key, names.BUSY_UNTIL), now)
        if until is not None and age > SEEN_S and not ended and _lasts(until, now):
            return f"it is busy until {until}"
    owner, until = state.owner_of(before), annotations(vm).get(names.CLAIMED_UNTIL)
    age = now - state.marked.get((VMS, change.key, names.CLAIMED_BY), now)
    # A claimed VM goes with its pool.
    is_claimed = names.CLAIMED_BY in annotations(vm) and not (owner is not None and is_leaving(owner))
    if is_claimed and age > SEEN_S and not ended and (until is None or _lasts(until, now)):
        return "it is claimed"
    if (vm or {}).get("status", {}).get("snapshotInProgress") and not is_final:
        return "a snapshot is in progress"
    if owner is not None and owner["spec"].get("paused") and not is_leaving(owner):
        key = ObjectKey(owner["metadata"]["namespace"], name_of(owner))
        return "its set or pool is paused" if now - state.owner_changed.get(key, now) > SEEN_S else ""
    return ""


def _lasts(until: str, now: float) -> bool:
    try:
        return (datetime.fromisoformat(until) - BEGIN).total_seconds() > now + CLOCK_S
    except ValueError:
        return True


@sentence
def few_are_out_of_service(life: Life) -> Iterator[Found | None]:
    """Through our doing, never more than `maxUnavailable` VMs are out of service: not ready, or out of their Service
    by label, or gone.
    """
    taken: dict[str, dict[str, float]] = {}
    most: dict[str, list[tuple[float, int]]] = {}
    for state, change in replay(life):
        if change.at > BUSY_UNTIL_S:
            return
        if change.resource in (POOLS, SETS) and change.after is not None:
            limits = most.setdefault(change.last["metadata"]["uid"], [])
            limits.append((change.at, most_unavailable(change.last)))
        if change.resource not in (VMS, VMIS):
            continue
        owner = state.owner_of(change.last)
        if owner is None or is_leaving(owner):
            continue
        uid = owner["metadata"]["uid"]
        out = taken.setdefault(uid, {})
        _note_return(state, change, owner, out)
        if change.is_ours and _takes_out(state, change, owner):
            yield None
            out[change.key.name] = change.at
            limit = max(value for at, value in recent(most.get(uid, []), min(out.values()) - 5.0))
            missing = owner["spec"]["replicas"] - _serving(state, owner, but=change.key)
            if (
                min(len(out), missing) > limit
                and not is_disturbed(life, change.at)
                and not _has_left(life, owner, change)
            ):
                text = f"{', '.join(sorted(out))} are out of service, {limit} may be"
                yield change.at, name_of(owner), text + _circumstances(state, out, owner)


def _has_left(life: Life, owner: Document, change: Change) -> bool:
    """True if a user has just taken a member away, which no controller has seen yet."""
    taken = (act for act in life.story.acts if act.what in ("relabel", "detach") and act.args[1] == name_of(owner))
    return any(act.at <= change.at < act.at + 1 for act in taken)


def _serving(state: State, owner: Document, *, but: ObjectKey) -> int:
    """The number of members that are ready and in service, or that a user has stopped, without the member `but`."""
    members = state.members(owner)
    keys = [ObjectKey(each["metadata"]["namespace"], name_of(each)) for each in members]
    vmis = filter(None, (state.get(VMIS, key) for key in keys if key != but))
    stopped = sum(each["spec"].get("runStrategy") == "Halted" for each in members)
    return stopped + sum(is_ready(vmi) and not is_leaving(vmi) and not _out_by_label(vmi) for vmi in vmis)


def recent(limits: list[tuple[float, int]], since: float) -> list[tuple[float, int]]:
    """The limits that held at some time since then."""
    before = [each for each in limits if each[0] <= since]
    return [*before[-1:], *(each for each in limits if each[0] > since)] or [(0.0, 1000)]


def most_unavailable(owner: Document) -> int:
    spec = owner["spec"]
    if "virtualMachineTemplate" in spec:
        return amount(spec.get("maxUnavailable", "100%"), spec["replicas"], spec["replicas"] or 1)
    text = annotations(owner).get(names.ROLLING_UPDATE, "")
    for part in text.split(","):
        if part.startswith("maxUnavailable="):
            value = part.partition("=")[2]
            return amount(int(value) if value.isdigit() else value, spec["replicas"], 1)
    return 1000


def _circumstances(state: State, out: dict[str, float], owner: Document) -> str:
    """What a known fault may explain."""
    keys = [ObjectKey(owner["metadata"]["namespace"], name) for name in out]
    drains = any(names.DRAINING in annotations(state.get(each, key)) for each in (VMS, VMIS) for key in keys)
    template = owner["spec"].get("virtualMachineTemplate") or {"spec": {"runStrategy": "Always"}}
    strategy = template["spec"]["runStrategy"]
    return f"{', while one drains' if drains else ''}{f', and they run {strategy}' if strategy != 'Always' else ''}"


def _takes_out(state: State, change: Change, owner: Document) -> bool:
    """True if this change of ours takes a VM in service out of service, and no scale-in does it. A standby is in no
    service, and a claimed VM is its user's.
    """
    if change.before is None or scales_in(state, owner, change.at):
        return False
    mark = annotations(change.last).get(names.DRAINING, "")
    vm, vmi = state.get(VMS, change.key), state.get(VMIS, change.key)
    serves = is_ready(vmi) and not is_leaving(vmi) and not is_leaving(vm)
    if not serves or is_on_standby(vm) or {names.REMOVE, names.CLAIMED_BY} & {*annotations(vm or vmi)}:
        return False
    if begins_to_leave(change) or asks_for_restart(change):
        return True
    return _out_by_label(change.last) and not _out_by_label(change.before) and not mark.startswith("scale-in")


def _out_by_label(document: Document) -> bool:
    if "template" in document.get("spec", {}):
        labels = document["spec"]["template"].get("metadata", {}).get("labels") or {}
    else:
        labels = document["metadata"].get("labels") or {}
    return labels.get(names.IN_SERVICE) == "false"


def _has_ended(vm: Document) -> bool:
    is_stopped = (vm.get("status") or {}).get("printableStatus") == "Stopped"
    return is_stopped and vm["spec"].get("runStrategy") in ("RerunOnFailure", "Once")


def _note_return(state: State, change: Change, owner: Document, out: dict[str, float]) -> None:
    """A VM returns if it is ready and in service. In a set, its successor returns in its place. A surplus VM that
    leaves has no successor.
    """
    after = change.after
    if begins_to_leave(change):
        staying = [each for each in state.members(owner) if not is_leaving(each) and not is_beside(each)]
        if len(staying) > owner["spec"]["replicas"]:
            out.pop(change.key.name, None)
    if after is None or is_leaving(after):
        return
    is_pool = "virtualMachineTemplate" in owner["spec"]
    if is_pool:
        vm, vmi = state.get(VMS, change.key), state.get(VMIS, change.key)
        vm, vmi = (after, vmi) if change.resource is VMS else (vm, after)
        is_claimed = names.CLAIMED_BY in annotations(vm)
        if vm is not None and (is_claimed or vm["spec"].get("runStrategy") == "Halted" or _has_ended(vm)):
            out.pop(change.key.name, None)  # it does not count, its user has stopped it, or its guest has ended
        serves = (
            is_ready(vmi) and not is_leaving(vmi) and not is_leaving(vm) and not _out_by_label(vmi or {"metadata": {}})
        )
        if not serves or (change.is_ours and _out_by_label(after)):
            return
        gone = [each for each in out if state.get(VMS, ObjectKey(change.key.namespace, each)) is None]
        if change.key.name in out:
            del out[change.key.name]
        elif gone and change.resource is VMIS and not is_ready(change.before):
            del out[gone[0]]  # the successor has another name
        return
    if is_ready(after) and not _out_by_label(after):
        if change.key.name in out:
            del out[change.key.name]
        elif change.before is not None and not is_ready(change.before) and out:
            del out[min(out, key=lambda each: out[each])]


@sentence
def a_guest_drains_before_it_goes(life: Life) -> Iterator[Found | None]:
    """A VM of a set or pool with a drain time is deleted or restarted only after it said that it has drained, or after
    its deadline.
    """
    for state, change in replay(life):
        if not change.is_ours or change.resource not in (VMS, VMIS) or change.at > BUSY_UNTIL_S:
            continue
        owner = state.owner_of(change.before or {"metadata": {}})
        if owner is None or is_leaving(owner) or not (begins_to_leave(change) or asks_for_restart(change)):
            continue
        if is_on_standby(change.before):
            continue
        seconds = annotations(owner).get(names.DRAIN_SECONDS, "0")
        key = ObjectKey(change.key.namespace, name_of(owner))
        is_young = change.at - state.owner_changed.get(key, change.at) < SEEN_S
        vmi = state.get(VMIS, change.key)
        runs = vmi is not None and _runs_for_s(vmi, change.at) > SEEN_S and not is_leaving(vmi)
        if not seconds.isdigit() or not int(seconds) or is_young or not runs or is_disturbed(life, change.at):
            continue
        yield None
        holder = vmi if "virtualMachineTemplate" not in owner["spec"] else state.get(VMS, change.key)
        mark, is_answered = annotations(holder).get(names.DRAINING, ""), names.DRAINED in annotations(holder)
        until = mark.partition(" until ")[2].partition(" of ")[0]
        if not is_answered and (not until or _lasts(until, change.at + CLOCK_S)):
            text = f"{change.key.name} was deleted or restarted before its drain ended ({mark or 'no mark'})"
            yield change.at, name_of(owner), text


def _runs_for_s(vmi: Document, now: float) -> float:
    status = vmi.get("status", {})
    if status.get("phase") != "Running":
        return 0.0
    times = status.get("phaseTransitionTimestamps") or ()
    began = [each["phaseTransitionTimestamp"] for each in times if each["phase"] == "Running"]
    return now - (datetime.fromisoformat(began[-1]) - BEGIN).total_seconds() if began else now


@sentence
def a_successor_can_be_created(life: Life) -> Iterator[Found | None]:
    """Nothing is deleted whose successor would be refused, without a request of a user."""
    for state, change in replay(life):
        is_deletion = change.is_ours and change.resource in (VMS, VMIS) and begins_to_leave(change)
        if not is_deletion or change.at > BUSY_UNTIL_S:
            continue
        owner = state.owner_of(change.last)
        is_standby = is_on_standby(change.before)
        if owner is None or is_leaving(owner) or is_standby or scales_in(state, owner, change.at):
            continue
        asks = {names.REMOVE, names.CLAIMED_BY} & annotations(change.before).keys()  # also the end of a claim
        if controller_uid(change.last) != owner["metadata"]["uid"] or asks:
            continue
        kinds = ("quota", f"refuse create {change.resource.plural}")
        for fault in life.faults.all:
            name = fault.kind if fault.kind == "quota" else f"{fault.kind} {fault.target}"
            yield from (None for _ in kinds if name in kinds and fault.holds(change.at))
            if name in kinds and fault.start + 30 < change.at < fault.end and not is_disturbed(life, change.at):
                text = f"{change.key.name} was deleted while {name} had lasted {change.at - fault.start:.0f} s"
                yield change.at, name_of(owner), text


@sentence
def no_disk_goes_that_could_stay(life: Life) -> Iterator[Found | None]:
    """A disk of a pool that preserves state outlives its VM."""
    preserved: dict[tuple[AnyResource, ObjectKey], str] = {}
    for state, change in replay(life):
        if change.at > BUSY_UNTIL_S:
            return
        if change.resource is VMS and begins_to_leave(change):
            owner, disks = state.owner_of(change.last), change.last["spec"].get("dataVolumeTemplates") or ()
            keys = [(PVCS, ObjectKey(change.key.namespace, each["metadata"]["name"])) for each in disks]
            if _is_made_again(change):
                preserved = {key: name for key, name in preserved.items() if key not in keys}
                continue
            if owner is not None and not is_leaving(owner) and _preserves(owner) and change.is_ours:
                changed = state.owner_changed.get(ObjectKey(change.key.namespace, name_of(owner)), 0.0)
                for key in keys if change.at - changed > 10 else ():
                    yield None
                    preserved[key] = name_of(owner)
        is_gone = change.resource in (PVCS, DATA_VOLUMES) and begins_to_leave(change)
        if is_gone and change.actor == "garbage collector" and (PVCS, change.key) in preserved:
            yield change.at, preserved[PVCS, change.key], f"the disk {change.key.name} went with its VM"


def _preserves(owner: Document) -> bool:
    strategy = owner["spec"].get("scaleInStrategy") or {}
    return any((block or {}).get("statePreservation") in ("Offline", "Online") for block in strategy.values())


def _is_made_again(change: Change) -> bool:
    """True if the VM gets new disks: its deletion takes the old ones along."""
    return "foregroundDeletion" in (change.last["metadata"].get("finalizers") or [])


@sentence
def a_disk_of_a_user_stays(life: Life) -> Iterator[Found | None]:
    """A disk that a user made by hand is never deleted through our doing."""
    for change in life.changes:
        labels = change.last["metadata"].get("labels") or {}
        is_gone = change.resource is PVCS and begins_to_leave(change) and change.actor == "garbage collector"
        if change.before is None and labels.get("made-by") == "hand":
            yield None
        if is_gone and labels.get("made-by") == "hand":
            yield change.at, owner_by_name(life, change.key.name), f"the disk {change.key.name} of a user was deleted"


@sentence
def no_restart_ends_a_claim(life: Life) -> Iterator[Found | None]:
    """No VM is stopped that uses a claim that is being deleted and would else stay: its data would be lost (P20)."""
    ending: dict[ObjectKey, float] = {}
    for state, change in replay(life):
        if change.resource is PVCS and change.after is not None and is_terminating(change.after):
            if change.key not in ending:
                ending[change.key] = change.at
                yield from (None for each in state.of(VMIS).values() if change.key.name in claims_of(each))
        elif change.resource is PVCS:
            ending.pop(change.key, None)
        vm, vmi = (change.before if change.resource is each else state.get(each, change.key) for each in (VMS, VMIS))
        if not (change.is_ours and vm and vmi) or is_leaving(vm) or vmi["status"].get("phase") != "Running":
            continue
        owner = state.owner_of(vm)
        keeps = change.resource is VMIS or (owner is not None and _preserves(owner) and not _is_made_again(change))
        if not (asks_for_restart(change) or (begins_to_leave(change) and keeps)):
            continue
        claims = [ObjectKey(change.key.namespace, each) for each in claims_of(vmi)]
        if lost := [each.name for each in claims if ending.get(each, change.at) < change.at - SEEN_S]:
            yield change.at, owner_by_name(life, change.key.name), f"{change.key.name} lost {', '.join(lost)}"


@sentence
def who_serves_is_in_service(life: Life) -> Iterator[Found | None]:
    """A VM that does not drain and is no standby is in its Service."""
    out: dict[ObjectKey, float] = {}
    for state, change in replay(life):
        for key, since in list(out.items()):
            is_hindered = life.faults.overlap(since - 1, change.at, "strip", "refuse") or is_disturbed(life, change.at)
            if change.at - since > SERVED_S and not is_hindered:
                del out[key]
                vmi = state.get(VMIS, key)
                owner = state.owner_of(vmi) if vmi else None
                yield change.at, name_of(owner) if owner else key.name, f"{key.name} is ready, and out of its Service"
        if change.resource not in (VMS, VMIS):
            continue
        vm, vmi = (change.after if change.resource is each else state.get(each, change.key) for each in (VMS, VMIS))
        drains = is_on_standby(vm) or any(names.DRAINING in annotations(each) for each in (vm, vmi))
        is_out = vmi is not None and _out_by_label(vmi) and is_ready(vmi) and not is_leaving(vmi) and not drains
        if not is_out or is_leaving(vm):
            out.pop(change.key, None)
        elif state.owner_of(vmi or {}) is not None:
            yield None
            out.setdefault(change.key, change.at)


SERVED_S: Final = 20.0
