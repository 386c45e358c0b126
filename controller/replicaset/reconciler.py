"""The replica set's shell: snapshot, plan, outcomes, status. Everything it decides, it asks the core."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Protocol

import structlog

from controller.events import EventRecorder, ObjectRef
from controller.executor import Executor
from controller.expectations import Expectations
from controller.kubevirt.types import ReplicaSet, VirtualMachineInstance
from controller.planning import Notice, Outcome
from controller.reconcile import Report, Settled, facts_of, result_of
from controller.replicaset.plan import INVALID_SPEC, plan
from controller.replicaset.snapshot import Snapshot, recounted, take_snapshot
from controller.replicaset.status import next_status, outcome_notices, status_patch, transition_notices
from controller.status import StatusWriter
from informers.errors import ApiError
from informers.meta import ObjectKey
from informers.resource import Resource
from informers.store import StoreView

log = structlog.get_logger()

COMPONENT = "virtualmachineinstancereplicaset-controller"
"""Where its Events come from (R12)."""


class StaleInstruments(Protocol):
    def stale_pass(self, controller: str) -> None: ...


class ReplicaSetReconciler:
    """Brings one VirtualMachineInstanceReplicaSet to what it asks for. `now` is the wall clock, for readiness times."""

    def __init__(
        self,
        *,
        replicasets: StoreView[ReplicaSet],
        vmis: StoreView[VirtualMachineInstance],
        replicaset_resource: Resource[ReplicaSet],
        vmi_resource: Resource[VirtualMachineInstance],
        executor: Executor,
        expectations: Expectations,
        status_writer: StatusWriter,
        recorder: EventRecorder,
        burst: int,
        now: Callable[[], datetime],
        instruments: StaleInstruments,
    ) -> None:
        self._replicasets = replicasets
        self._vmis = vmis
        self._replicaset_resource = replicaset_resource
        self._vmi_resource = vmi_resource
        self._executor = executor
        self._expectations = expectations
        self._status_writer = status_writer
        self._recorder = recorder
        self._burst = burst
        self._now = now
        self._instruments = instruments

    async def reconcile(self, key: ObjectKey) -> Report:
        trouble = await self._settle(key)
        snapshot = self._take_snapshot(key)
        if snapshot is None:
            self._expectations.forget(key)
            self._status_writer.forget(key)
            return Report(Settled())
        todo = plan(snapshot)
        for notice in todo.notices:
            if notice.reason == INVALID_SPEC:
                log.error("invalid spec, nothing is done", why=notice.message)
        if not snapshot.settled:
            self._instruments.stale_pass("replicaset")
        outcomes = await self._executor.carry_out(key, snapshot.owner.metadata.uid, todo)
        self._publish(snapshot.owner, (*todo.notices, *outcome_notices(outcomes)))
        # await: the cache has moved on while the plan was carried out, and the status tells what is true now.
        latest = self._recount(key, snapshot) if outcomes else snapshot
        written = True
        try:
            written = latest is None or await self._write_status(key, latest, outcomes)
        except ApiError as error:
            trouble = trouble or error
        result = result_of(todo, outcomes, settled=snapshot.settled and written, trouble=trouble)
        return Report(result, facts_of(todo, outcomes, trouble=trouble))

    async def _settle(self, key: ObjectKey) -> ApiError | None:
        """Clear up what became of writes whose answer was lost. While that fails, the plan is held and says so."""
        owner = self._replicasets.get(key)
        return None if owner is None else await self._executor.settle(key, owner.metadata.uid)

    def _recount(self, key: ObjectKey, planned: Snapshot) -> Snapshot | None:
        latest = self._take_snapshot(key)
        return None if latest is None else recounted(planned, latest)

    def _take_snapshot(self, key: ObjectKey) -> Snapshot | None:
        owner = self._replicasets.get(key)
        if owner is None:
            return None
        return take_snapshot(
            self._replicasets,
            self._vmis,
            key,
            now=self._now(),
            settled=self._expectations.settled(key, owner.metadata.uid),
            burst=self._burst,
            replicaset_resource=self._replicaset_resource,
            vmi_resource=self._vmi_resource,
        )

    async def _write_status(self, key: ObjectKey, snapshot: Snapshot, outcomes: tuple[Outcome, ...]) -> bool:
        """Bring the status up to date (R11). False when that has to wait for the cache. Raises ApiError."""
        owner = snapshot.owner
        status = next_status(snapshot, outcomes)
        patch = status_patch(owner, status)
        if patch is None:
            return True
        if not self._status_writer.may_write(key, owner.metadata.uid):
            return False
        if not await self._status_writer.write(key, owner.metadata.uid, patch):
            return False
        self._publish(owner, transition_notices(owner.status, status))
        return True

    def _publish(self, owner: ReplicaSet, notices: tuple[Notice, ...]) -> None:
        if not notices:
            return
        ref = ObjectRef(
            api_version=self._replicaset_resource.api_version,
            kind=self._replicaset_resource.kind,
            namespace=owner.metadata.namespace,
            name=owner.metadata.name,
            uid=owner.metadata.uid,
            resource_version=owner.metadata.resource_version,
        )
        self._recorder.publish(ref, notices, component=COMPONENT)
