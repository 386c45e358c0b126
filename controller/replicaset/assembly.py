"""Puts the replica set's controller together: informer, queue, wake-ups, expectations, reconciler, workers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from controller.assembly import Assembly, Parts
from controller.executor import Executor
from controller.expectations import Expectations
from controller.kubevirt.resources import VMIS, replicaset_resource
from controller.kubevirt.types import ReplicaSet, VirtualMachineInstance
from controller.metrics_page import SetFigures
from controller.replicaset.reconciler import ReplicaSetReconciler
from controller.replicaset.snapshot import REPLICASET_INDEXES
from controller.replicaset.wake import Wake, replicasets_of_replicaset, replicasets_of_vmi
from controller.runtime import Controller
from controller.status import StatusWriter
from informers.informer import SharedInformer
from informers.meta import ObjectKey
from informers.resource import Resource
from informers.store import StoreView
from informers.workqueue import WorkQueue

NAME = "replicaset"
"""What its queue and its metrics are called."""


def assemble_replicaset(
    parts: Parts, vmis: SharedInformer[VirtualMachineInstance], *, group: str, now: Callable[[], datetime]
) -> Assembly:
    """The controller of VirtualMachineInstanceReplicaSets under this group. `vmis` is shared between kinds."""
    resource = replicaset_resource(group)
    sets = parts.informer(resource, indexes=REPLICASET_INDEXES)
    queue: WorkQueue[ObjectKey] = WorkQueue(NAME, instruments=parts.metrics)
    sets.add_handler(lambda change: _wake(queue, replicasets_of_replicaset(change)))
    vmis.add_handler(lambda change: _wake(queue, replicasets_of_vmi(change, sets.store)))

    def expectations(shown_by: Resource[Any], store: StoreView[Any]) -> Expectations:
        clock = asyncio.get_running_loop().time
        return Expectations({shown_by: store}, now=clock, gave_up=lambda: parts.metrics.gave_up(NAME))

    written = expectations(VMIS, vmis.store)
    parts.metrics.show_unsettled(NAME, written.oldest_s)
    reconciler = ReplicaSetReconciler(
        replicasets=sets.store,
        vmis=vmis.store,
        replicaset_resource=resource,
        vmi_resource=VMIS,
        executor=Executor(parts.client, written, controller=NAME, instruments=parts.metrics),
        expectations=written,
        status_writer=StatusWriter(parts.client, resource, expectations(resource, sets.store)),
        recorder=parts.recorder,
        burst=parts.config.burst,
        now=now,
        instruments=parts.metrics,
    )
    controller = Controller(NAME, queue, reconciler, workers=parts.config.workers, instruments=parts.metrics)
    return Assembly(controller, sets, lambda: _figures(sets.store.values()))


def _wake(queue: WorkQueue[ObjectKey], wakes: Iterable[Wake]) -> None:
    for key, delay_s in wakes:
        queue.add_after(key, delay_s)


def _figures(sets: Iterable[ReplicaSet]) -> Iterable[SetFigures]:
    """Made from values that never change, so it may be iterated anywhere."""
    for owner in sets:
        status = owner.status
        yield SetFigures(
            kind="VirtualMachineInstanceReplicaSet",
            namespace=owner.metadata.namespace,
            name=owner.metadata.name,
            desired=1 if owner.spec.replicas is None else owner.spec.replicas,
            current=(status and status.replicas) or 0,
            ready=(status and status.ready_replicas) or 0,
            updated=(status and status.updated_replicas) or 0,
        )
