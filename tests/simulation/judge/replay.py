"""Replays the history of a life: the state of the server before each change."""

from collections.abc import Iterator
from typing import Any, Final

from controller.kubevirt import annotations as names
from controller.kubevirt.resources import VMIS, VMS
from informers.meta import ObjectKey
from tests.fakes.requests import AnyResource, Document
from tests.simulation.life import Life
from tests.simulation.objects import controller_uid, is_beside, is_on_standby
from tests.simulation.server import Change
from tests.simulation.world import POOLS, SETS

HIDING: Final = ("missed", "stall-list")
DISTURBING: Final = (
    "lost",
    "slow",
    "stale",
    "older",
    "stall",
    "stall-list",
    "error",
    "throttle",
    "refused-connection",
    *HIDING,
)
DISTURBED_S: Final = 150.0
"""After such a fault, or after a silent watch, the caches may be old for this time in seconds."""


class State:
    """The objects on the server. `since` has the time of the last change of each mark."""

    def __init__(self) -> None:
        self.objects: dict[AnyResource, dict[ObjectKey, Document]] = {}
        self.marked: dict[tuple[AnyResource, ObjectKey, str], float] = {}
        self.owner_changed: dict[ObjectKey, float] = {}

    def of(self, resource: AnyResource) -> dict[ObjectKey, Document]:
        return self.objects.setdefault(resource, {})

    def get(self, resource: AnyResource, key: ObjectKey) -> Document | None:
        return self.of(resource).get(key)

    def apply(self, change: Change) -> None:
        before, after = annotations(change.before), annotations(change.after)
        for name in before.keys() | after.keys():
            if before.get(name) != after.get(name):
                self.marked[change.resource, change.key, name] = change.at
        if change.resource in (POOLS, SETS) and change.actor == "user":
            self.owner_changed[change.key] = change.at
        if change.after is None:
            self.of(change.resource).pop(change.key, None)
        else:
            self.of(change.resource)[change.key] = change.after

    def owner_of(self, member: Document) -> Document | None:
        """The set or pool that controls a VM or a VMI of a set, or whose VM has this VMI."""
        uid = controller_uid(member)
        for resource in (POOLS, SETS):
            for owner in self.of(resource).values():
                if owner["metadata"]["uid"] == uid:
                    return owner
        for vm in self.of(VMS).values():
            if vm["metadata"]["uid"] == uid:
                return self.owner_of(vm)
        return None

    def members(self, owner: Document) -> list[Document]:
        """The VMs of a pool that are neither claimed nor on standby, or the VMIs of a set. Those that are being deleted
        are left out.
        """
        resource, uid = VMS if "virtualMachineTemplate" in owner["spec"] else VMIS, owner["metadata"]["uid"]
        found = self.of(resource).values()
        staying = [
            each for each in found if controller_uid(each) == uid and "deletionTimestamp" not in each["metadata"]
        ]
        return [each for each in staying if not is_beside(each)]


def replay(life: Life) -> Iterator[tuple[State, Change]]:
    """Yield each change with the state before it."""
    state = State()
    for change in life.changes:
        yield state, change
        state.apply(change)


def annotations(document: Document | None) -> dict[str, Any]:
    return ((document or {}).get("metadata") or {}).get("annotations") or {}


def name_of(document: Document) -> str:
    name: str = document["metadata"]["name"]
    return name


def owner_by_name(life: Life, member: str) -> str:
    """The name of the set or pool whose members have names like this, or the name itself."""
    owners = (act.args[1] for act in life.story.acts if act.what == "create")
    return next((name for name in owners if member.startswith(name)), member)


def is_leaving(document: Document | None) -> bool:
    return document is not None and "deletionTimestamp" in document["metadata"]


def begins_to_leave(change: Change) -> bool:
    """True if the change deletes the object, or marks it as being deleted."""
    return change.before is not None and not is_leaving(change.before) and is_leaving(change.last)


def asks_for_restart(change: Change) -> bool:
    before = (change.before or {}).get("status", {}).get("stateChangeRequests")
    return change.resource is VMS and bool(change.last.get("status", {}).get("stateChangeRequests")) and not before


def is_disturbed(life: Life, at: float) -> bool:
    """True if the caches of the controllers may be old at this time, or a controller may have been suspended."""
    start = at - DISTURBED_S
    silences = ("silent", "suspend", "expired", "reset")
    acts = (act for act in life.story.acts if act.what in silences or (act.what == "fault" and act.args[0] in silences))
    return life.faults.overlap(start, at, *DISTURBING) or any(start <= act.at <= at for act in acts)


def scales_in(state: State, owner: Document, at: float) -> bool:
    """True if the set or pool has more members than it wants, or got another spec a moment ago. A busy standby is a
    member.
    """
    changed = state.owner_changed.get(ObjectKey(owner["metadata"]["namespace"], owner["metadata"]["name"]), 0.0)
    uid, vms = owner["metadata"]["uid"], state.of(VMS).values()
    busy = sum(
        is_on_standby(each) and names.BUSY_UNTIL in annotations(each) for each in vms if controller_uid(each) == uid
    )
    return len(state.members(owner)) + busy > owner["spec"]["replicas"] or at - changed < 2.0


def amount(value: Any, whole: int, default: int) -> int:
    """A number or a percentage of `whole`, rounded down but at least 1."""
    if isinstance(value, int):
        return max(value, 1)
    if isinstance(value, str) and value.endswith("%") and value[:-1].isdigit():
        return max(whole * int(value[:-1]) // 100, 1)
    return default
