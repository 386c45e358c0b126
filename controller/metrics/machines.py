"""Counts the creations, deletions and updates of VMs and VMIs, for each controller and for each replica set or pool.

A write whose answer was lost counts as `unknown`, even if a later reconciliation learns the result. A write that was
not sent does not count, nor does a deletion of a VM or VMI that was gone already.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Counter

from controller.kinds import KINDS
from controller.kubevirt.resources import VMIS, VMS
from controller.metrics.objects import MachineTally, Tallies
from controller.runtime.actions import (
    AlreadyThere,
    Cause,
    Create,
    Delete,
    Done,
    Outcome,
    Rejected,
    ThreeWayMerge,
    Unknown,
)
from informers.meta import ObjectKey

TALLIED: Final = {kind.kind: kind.tallied for kind in KINDS if kind.tallied is not None}
"""For each kind with counters for each set or pool: the resource of the counted VMs or VMIs."""

RESULTS: Final = ("success", "error", "unknown")
_VERBS: Final[Mapping[type, str]] = {Create: "created", Delete: "deleted", ThreeWayMerge: "updated"}

MEANINGS: Final[Mapping[str, str]] = {
    "created": "Attempts to create a VM or VMI, by result.",
    "deleted": "Attempts to delete a VM or VMI, by result.",
    "updated": "Attempts to update a VM to another template without deleting it, by result.",
}


class MachineCounts:
    """The counters of all controllers, and a `MachineTally` for each set or pool of a kind in `TALLIED`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        labels = ("controller", "kind", "result")
        self._counters = {
            verb: Counter(f"vmherd_vms_{verb}_total", meaning, labels, registry=registry)
            for verb, meaning in MEANINGS.items()
        }
        self._healings = Counter(
            "vmherd_healings_total", "VMs that were deleted because they failed.", ("controller",), registry=registry
        )
        self._tallies: dict[tuple[str, str, str], MachineTally] = {}

    def start(self, controller: str) -> None:
        """Create the counters of all writes that this controller can send. The counters start at zero."""
        writes = {verb: resources for kind in KINDS if kind.name == controller for verb, resources in kind.writes}
        for verb, resources in writes.items():
            for resource in resources:
                for result in RESULTS:
                    self._counters[verb].labels(controller, resource.kind, result)
        if VMS in writes.get("deleted", ()):
            self._healings.labels(controller)

    def count(self, controller: str, owner_kind: str, owner: ObjectKey, outcomes: Iterable[Outcome]) -> None:
        tallied = TALLIED.get(owner_kind)
        counts: defaultdict[tuple[str, str, str], int] = defaultdict(int)
        started = stopped = healed = 0
        for outcome in outcomes:
            action, result = outcome.action, _result_of(outcome)
            verb, resource = _VERBS.get(type(action)), action.resource
            if verb is None or not result or resource not in (VMS, VMIS):
                continue
            counts[verb, resource.kind, result] += 1
            if resource is tallied and result == "success":
                started += verb == "created"
                stopped += verb == "deleted"
                healed += isinstance(action, Delete) and action.cause is Cause.HEALING
        for (verb, kind, result), number in counts.items():
            self._counters[verb].labels(controller, kind, result).inc(number)
        if healed:
            self._healings.labels(controller).inc(healed)
        if started + stopped:
            before = self._tallies.get((owner_kind, *owner), MachineTally())
            self._tallies[owner_kind, *owner] = MachineTally(
                before.started + started, before.stopped + stopped, before.healed + healed
            )

    def forget(self, owner_kind: str, owner: ObjectKey) -> None:
        self._tallies.pop((owner_kind, *owner), None)

    def tallies(self) -> Tallies:
        """Return a copy of the `MachineTally` of each set or pool. Any thread may read the copy."""
        return dict(self._tallies)


def _result_of(outcome: Outcome) -> str:
    match outcome:
        case Done() | AlreadyThere():
            return "success"
        case Rejected():
            return "error"
        case Unknown():
            return "unknown"
        case _:
            return ""
