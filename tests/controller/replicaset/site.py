"""A replica set's reconciler at work: on an API in memory, through caches that lag, as one process after another."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from controller.kinds import REPLICA_SETS
from controller.kubevirt.replicaset_types import ReplicaSet
from controller.kubevirt.resources import VMIS
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.kubevirt.vmis import is_active
from controller.replicaset.rules import ReplicaSetRules
from controller.replicaset.snapshot import REPLICASET_INDEXES, VMI_INDEXES
from controller.runtime.executor import Executor
from controller.runtime.expectations import Expectations
from controller.runtime.plan import AnyResource, Notice
from controller.runtime.reconciler import RulesReconciler
from controller.runtime.result import Report
from controller.runtime.status_writer import StatusWriter
from informers.meta import ObjectKey, controller_of
from informers.store import Change, StoreView
from tests.builders import NOW, REPLICASETS
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.caches import LaggingCache
from tests.fakes.requests import Fault, Request

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
    """An orphan that the set would adopt."""
    meta = {"name": name, "namespace": KEY.namespace, "labels": LABELS, **metadata}
    return {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": meta}


class Recorder:
    """Hears what is told in Events."""

    def __init__(self) -> None:
        self.told: list[Notice] = []

    def publish(self, ref: object, notices: Iterable[Notice], *, component: str = "") -> None:
        self.told += notices


class Tally(Counter[str]):
    def acted(self, controller: str, *, action: str, outcome: str) -> None:
        self[f"{action} {outcome}"] += 1

    def stale_pass(self, controller: str) -> None:
        self["stale"] += 1


class Site:
    def __init__(
        self,
        *,
        burst: int = 250,
        finalizers: bool = False,
        vmi_handler: Callable[[Change[VirtualMachineInstance]], None] = lambda change: None,
        set_handler: Callable[[Change[ReplicaSet]], None] = lambda change: None,
    ) -> None:
        """`finalizers` gives each VMI one, as KubeVirt does, so that it takes a while to go."""
        held_by = {VMIS: ["kubevirt.io/virtualMachineControllerFinalize"]} if finalizers else {}
        self.api = FakeApiServer(has_status=(REPLICASETS,), finalizers=held_by)
        self.sets = LaggingCache(self.api, REPLICASETS, indexes=REPLICASET_INDEXES, handler=set_handler)
        self.vmis = LaggingCache(self.api, VMIS, indexes=VMI_INDEXES, handler=vmi_handler)
        self.recorder = Recorder()
        self.tally = Tally()
        self._burst = burst
        self.take_over()

    def take_over(self) -> None:
        """A new process with the caches that the old one had: it knows nothing of what that one wrote."""

        def expectations(resource: AnyResource, store: StoreView[Any]) -> Expectations:
            clock = asyncio.get_running_loop().time
            return Expectations({resource: store}, now=clock, gave_up=lambda: self.tally.update(["gave up"]))

        written = expectations(VMIS, self.vmis.store)
        self.reconciler = RulesReconciler(
            REPLICA_SETS,
            ReplicaSetRules(self.sets.store, self.vmis.store, REPLICASETS, VMIS, self._burst),
            executor=Executor(self.api, written, controller="replicaset", instruments=self.tally),
            expectations=written,
            status_writer=StatusWriter(self.api, REPLICASETS, expectations(REPLICASETS, self.sets.store)),
            recorder=self.recorder,
            now=lambda: NOW,
            instruments=self.tally,
        )

    def restart(self) -> None:
        """A new process that lists everything first."""
        self.hear_all()
        self.take_over()

    def hear_all(self) -> None:
        self.sets.catch_up()
        self.vmis.catch_up()

    async def reconcile(self) -> Report:
        return await self.reconciler.reconcile(KEY)

    async def come_to_rest(self, *, passes: int = 30) -> int:
        """Reconcile with fresh caches until a pass sends nothing. Return how many passes that took."""
        for number in range(passes):
            self.hear_all()
            before = len(self.api.requests)
            await self.reconcile()
            if len(self.api.requests) == before:
                return number
        raise AssertionError(f"still busy after {passes} passes: {self.api.requests[-5:]}")

    def fail(self, fault: Fault, *, verb: str = "", resource: AnyResource | None = None, times: int = 10**6) -> None:
        """Have the next so many of these requests fail."""
        left = times

        def disturb(request: Request) -> Fault | None:
            nonlocal left
            if left and verb in ("", request.verb) and resource in (None, request.resource):
                left -= 1
                return fault
            return None

        self.api.fault_for = disturb

    def heal(self) -> None:
        self.api.fault_for = lambda request: None

    def sent(self, verb: str, resource: AnyResource = VMIS) -> int:
        return sum(request.verb == verb and request.resource is resource for request in self.api.requests)

    @property
    def owner(self) -> ReplicaSet:
        """The set as the server has it."""
        owner = self.api.find(REPLICASETS, KEY)
        assert owner is not None
        return owner

    @property
    def members(self) -> list[VirtualMachineInstance]:
        """The set's VMIs as the server has them."""
        uid = self.owner.metadata.uid
        return [
            vmi for vmi in self.api.objects(VMIS) if (by := controller_of(vmi.metadata)) is not None and by.uid == uid
        ]

    @property
    def active(self) -> list[VirtualMachineInstance]:
        return [vmi for vmi in self.members if is_active(vmi)]

    @property
    def reasons(self) -> list[str]:
        """What Events were told, in order."""
        return [notice.reason for notice in self.recorder.told]

    @property
    def conditions(self) -> dict[str, str]:
        """The set's conditions: what each says."""
        status = self.owner.status
        return {} if status is None else {c.type: c.message or "" for c in status.conditions or ()}
