"""A replica set on the fake API server. The real reconciler works on the set, with caches that may be stale."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from controller.kinds import REPLICA_SETS
from controller.kubevirt.replicaset_types import ReplicaSet
from controller.kubevirt.resources import CONTROLLER_REVISIONS, VMIS
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.kubevirt.vmis import is_active
from controller.replicaset.rosters import VMIRosters
from controller.replicaset.rules import ReplicaSetRules
from controller.replicaset.snapshot import REPLICASET_INDEXES, REVISION_INDEXES, VMI_INDEXES, RevisionCache, Snapshot
from controller.runtime.actions import Action, AnyResource, Outcome, Stage
from controller.runtime.execute.refusals import Refusals
from controller.runtime.result import Report
from informers.meta import ObjectKey, controller_of
from tests.builders import NOW, REPLICASETS, stored
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.caches import LaggingCache
from tests.fakes.process import ReconcilerProcess
from tests.fakes.requests import Document, Fault, Request
from tests.fakes.virtual_time import run

KEY = ObjectKey("default", "web")
LABELS = {"app": "web"}


def replicaset_document(*, replicas: int = 3, name: str = KEY.name, **spec: object) -> dict[str, Any]:
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstanceReplicaSet",
        "metadata": {"name": name, "namespace": KEY.namespace},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": LABELS},
            "template": {"metadata": {"labels": LABELS}, "spec": {"domain": {"devices": {}}}},
            **spec,
        },
    }


def vmi_document(name: str, **metadata: object) -> dict[str, Any]:
    """An orphan with the labels that the set selects."""
    meta = {"name": name, "namespace": KEY.namespace, "labels": LABELS, **metadata}
    return {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": meta}


def _document_of(owner: ReplicaSet) -> Document:
    template = owner.spec.template
    if template is not None and not bytes(template.spec):
        # A template without a spec, which has no encoding of its own.
        owner = replace(owner, spec=replace(owner.spec, template=replace(template, spec=Raw(b"null"))))
    document: Document = msgspec.json.decode(msgspec.json.encode(owner))
    return document


class ReplicaSetSimulation:
    """One set, the API server and the caches. The caches receive events when the test says so.

    With `instant`, the caches receive each write of the controller at once, and a deleted VMI keeps the finalizer of
    KubeVirt until the next call of `live_on`.
    """

    def __init__(self, *, key: ObjectKey = KEY, instant: bool = False, latency_s: float = 0.01) -> None:
        held_by = {VMIS: ["kubevirt.io/virtualMachineControllerFinalize"]} if instant else {}
        self.key = key
        self.elapsed = timedelta()
        """The time since the simulation began. `advance` increases the time."""
        self.server = FakeApiServer(
            latency_s=latency_s, has_status=(REPLICASETS,), finalizers=held_by, now=lambda: self.now
        )
        self.sets = LaggingCache(self.server, REPLICASETS, indexes=REPLICASET_INDEXES)
        self.vmis = LaggingCache(self.server, VMIS, indexes=VMI_INDEXES)
        self.revisions = LaggingCache(self.server, CONTROLLER_REVISIONS, indexes=REVISION_INDEXES)
        kept, rosters = RevisionCache(self.revisions.store, 5), VMIRosters(self.vmis.store)
        rules = ReplicaSetRules(self.sets.store, self.vmis.store, REPLICASETS, rosters, kept, burst=250)
        self.process = ReconcilerProcess(
            self.server,
            REPLICA_SETS,
            rules,
            owners=self.sets,
            children=[self.vmis, self.revisions],
            now=lambda: self.now,
            new_refusals=lambda: Refusals(self.seconds),
        )
        if instant:
            self.server.on_write = lambda request, before: self.process.catch_up()

    @classmethod
    def of(cls, owner: ReplicaSet, vmis: Iterable[VirtualMachineInstance] = ()) -> "ReplicaSetSimulation":
        """A simulation of these objects without delays, for synchronous tests."""
        made = cls(key=owner.metadata.key, instant=True, latency_s=0)
        made.server.put(REPLICASETS, _document_of(owner))
        for vmi in vmis:
            made.server.put(VMIS, msgspec.json.decode(msgspec.json.encode(vmi)))
        return made

    @property
    def now(self) -> datetime:
        return NOW + self.elapsed

    def seconds(self) -> float:
        return (self.now - NOW).total_seconds()

    def advance(self, seconds: float) -> None:
        self.elapsed += timedelta(seconds=seconds)

    def restart(self) -> None:
        """Start a new process that first lists all objects."""
        self.process.catch_up()
        self.process.restart()

    async def reconcile(self) -> Report:
        return await self.process.reconcile(self.key)

    async def come_to_rest(self) -> None:
        """Reconcile with fresh caches until no request is sent."""
        for _ in range(30):
            self.process.catch_up()
            before = len(self.server.requests)
            await self.reconcile()
            if len(self.server.requests) == before:
                return
        raise AssertionError(f"still busy after 30 passes: {self.server.requests[-5:]}")

    def run_pass(self) -> tuple[Action, ...]:
        """Reconcile once with fresh caches, in a synchronous test. Returns the actions that were tried."""
        self.process.catch_up()
        before = len(self.process.actions)
        run(self.reconcile())
        return tuple(self.process.actions[before:])

    def carry_out(self, stages: Sequence[Stage]) -> tuple[Outcome, ...]:
        """Carry out the stages of an earlier plan, in a synchronous test."""
        return run(self.process.carry_out(self.key, self.owner.metadata.uid, stages))

    def snapshot(self) -> Snapshot:
        self.process.catch_up()
        seen = self.process.rules.take_snapshot(self.key, now=self.now, settled=True)
        assert seen is not None
        return seen

    def live_on(self) -> None:
        """Remove terminating VMIs, and make all other active VMIs ready. Finished VMIs stay as they are."""
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": self.now.isoformat()}
        for name, document in self.server.documents(VMIS, self.key.namespace).items():
            if "deletionTimestamp" in document["metadata"]:
                self.server.finalize(VMIS, ObjectKey(self.key.namespace, name))
            elif is_active(VMIS.decode(msgspec.json.encode(document))):
                status = {"phase": "Running", "nodeName": "node-1", "conditions": [ready]}
                self.server.replace(VMIS, {**document, "status": status})

    def fail(self, fault: Fault, *, verb: str = "", resource: AnyResource | None = None, times: int = 10**6) -> None:
        """Make the next `times` requests of this kind fail."""
        left = times

        def fault_for(request: Request) -> Fault | None:
            nonlocal left
            if left and verb in ("", request.verb) and resource in (None, request.resource):
                left -= 1
                return fault
            return None

        self.server.fault_for = fault_for

    def heal(self) -> None:
        self.server.fault_for = lambda request: None

    def sent(self, verb: str, resource: AnyResource = VMIS) -> int:
        return sum(request.verb == verb and request.resource is resource for request in self.server.requests)

    def store_template(self) -> None:
        """Store the revision of the present template, as an earlier reconciliation did."""
        for each in stored(self.owner):
            self.server.put(CONTROLLER_REVISIONS, msgspec.json.decode(msgspec.json.encode(each)))

    @property
    def owner(self) -> ReplicaSet:
        owner = self.server.find(REPLICASETS, self.key)
        assert owner is not None
        return owner

    @property
    def members(self) -> list[VirtualMachineInstance]:
        found = [(each, controller_of(each.metadata)) for each in self.server.objects(VMIS)]
        return [each for each, by in found if by is not None and by.uid == self.owner.metadata.uid]

    @property
    def active(self) -> list[VirtualMachineInstance]:
        return [vmi for vmi in self.members if is_active(vmi)]

    @property
    def reasons(self) -> list[str]:
        return [notice.reason for notice in self.process.recorder.published]

    @property
    def conditions(self) -> dict[str, str]:
        status = self.owner.status
        return {} if status is None else {c.type: c.message or "" for c in status.conditions or ()}
