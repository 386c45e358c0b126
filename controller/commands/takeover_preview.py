"""Shows what the first pass of `vmherd run --mode takeover` would do to each replica set and pool.

The preview writes nothing to the cluster. It lists each resource once, and makes the plans with the rules of the
controller. So these plans are the plans that the controller would make in its first pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final, TypeVar

from controller.commands.command import list_all
from controller.kinds import POOLS, REPLICA_SETS
from controller.kubevirt.resources import CONTROLLER_REVISIONS, VMIS, VMS
from controller.pool.rules import PoolRules, UnreadyMemory
from controller.pool.snapshot import REVISION_INDEXES, VM_INDEXES, Limits, Stores
from controller.replicaset.rules import ReplicaSetRules
from controller.replicaset.snapshot import REPLICASET_INDEXES, VMI_INDEXES
from controller.runtime.dry_run import DryRunReport, dry_run_report
from controller.runtime.reconciler import Rules
from informers.client import ApiClient
from informers.meta import KubeObject
from informers.resource import Resource
from informers.store import Indexes, Store

LISTED: Final = 10
"""The largest number of actions that are printed for one object. Further actions are only counted."""

BURST: Final = 250

T = TypeVar("T", bound=KubeObject)


async def preview(client: ApiClient, *, now: datetime) -> list[str]:
    """Return lines with the planned actions and their reasons for each replica set and pool.

    An object without planned actions has a line that ends with `nothing`. Raises ApiError.
    """
    sets, pools = REPLICA_SETS.resource(), POOLS.resource()
    vmis = await _listed(client, VMIS, VMI_INDEXES)
    set_store = await _listed(client, sets, REPLICASET_INDEXES)
    stores = Stores(
        await _listed(client, pools, {}),
        await _listed(client, VMS, VM_INDEXES),
        vmis,
        await _listed(client, CONTROLLER_REVISIONS, REVISION_INDEXES),
    )
    every: tuple[Rules[Any], ...] = (
        ReplicaSetRules(set_store, vmis, sets, VMIS, BURST),
        PoolRules(stores, pools, Limits(BURST, takes_over=True), UnreadyMemory()),
    )
    lines = [line for rules in every for line in _lines_of(rules, now)]
    return lines or ["there are no replica sets and no pools"]


async def _listed(client: ApiClient, resource: Resource[T], indexes: Indexes[T]) -> Store[T]:
    store: Store[T] = Store(indexes=indexes)
    async for each in list_all(client, resource):
        store.apply(each)
    return store


def _lines_of(rules: Rules[Any], now: datetime) -> Iterator[str]:
    for owner in sorted(rules.owners.values(), key=lambda each: each.metadata.key):
        snapshot = rules.take_snapshot(owner.metadata.key, now=now, settled=True)
        report = dry_run_report(rules.plan(snapshot), status=False)
        yield from _lines(f"{rules.resource.plural} {owner.metadata.key}", report)


def _lines(subject: str, report: DryRunReport) -> Iterator[str]:
    """Yield the lines for one object.

    If the pass is held, the first line is the reason. Otherwise, the first lines are the Events of the pass. One line
    for each action follows, and one line with the number of actions that are not shown.
    """
    texts = [f"held: {report.held}"] if report.held else [*report.notices]
    texts += report.actions[:LISTED]
    if len(report.actions) > LISTED:
        texts.append(f"and {len(report.actions) - LISTED} more")
    for text in texts or ["nothing"]:
        yield f"{subject}: {text}"
