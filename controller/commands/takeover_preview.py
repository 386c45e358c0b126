"""Shows what the first reconciliation of `vmherd run --mode takeover` would do to each replica set and pool.

The preview writes nothing to the cluster. It lists each resource once, and makes the plans with the rules of the
controller. So the controller would make the same plans in its first reconciliation.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from typing import Any, Final, TypeVar

from controller.assembly import Cache, merged_caches
from controller.commands.command import list_all
from controller.config.modes import Mode
from controller.config.settings import Config
from controller.kinds import KINDS
from controller.preflight.versions import served_resource
from controller.runtime.dry_run import DryRunReport, dry_run_report
from controller.runtime.reconciler import Rules
from informers.http.client import ApiClient
from informers.meta import KubeObject
from informers.resource import Resource
from informers.store import Store

LISTED: Final = 10
"""The largest number of actions that are printed for one object. Further actions are only counted."""

TAKEOVER: Final = Config(mode=Mode.TAKEOVER.value)

TAKEN_OVER: Final = tuple(kind for kind in KINDS if kind.loop_flag)
"""The kinds for which KubeVirt has a controller."""

T = TypeVar("T", bound=KubeObject)


async def preview(client: ApiClient, *, now: datetime) -> list[str]:
    """Return lines with the planned actions and their reasons for each object of KubeVirt's kinds.

    An object without planned actions has a line that ends with `nothing`. Raises ApiError.
    """
    lines = [line async for rules in _every_rules(client) for line in _lines_of(rules, now)]
    return lines or [f"there are {' and '.join(f'no {kind.noun}s' for kind in TAKEN_OVER)}"]


async def _every_rules(client: ApiClient) -> AsyncIterator[Rules[Any]]:
    """List the objects of the cluster. For each kind in `TAKEN_OVER`, yield a `Rules` object that contains the listed
    objects.
    """
    modules = {kind: kind.module("wiring") for kind in TAKEN_OVER}
    caches = merged_caches(module.CACHES for module in modules.values())
    stores = {resource: await _listed(client, resource, cache) for resource, cache in caches.items()}
    for kind, module in modules.items():
        resource = await served_resource(client, kind)
        owners = await _listed(client, resource, module.OWNER_CACHE)
        yield module.rules_of(TAKEOVER, resource, owners, stores)


async def _listed(client: ApiClient, resource: Resource[T], cache: Cache) -> Store[T]:
    store: Store[T] = Store(indexes=cache.indexes)
    async for each in list_all(client, resource):
        kept = cache.transform(each) if cache.transform else each
        if kept is not None:
            store.apply(kept)
    return store


def _lines_of(rules: Rules[Any], now: datetime) -> Iterator[str]:
    for owner in sorted(rules.owners.values(), key=lambda each: each.metadata.key):
        snapshot = rules.take_snapshot(owner.metadata.key, now=now, settled=True)
        report = dry_run_report(rules.plan(snapshot), status=False)
        yield from _lines(f"{rules.resource.plural} {owner.metadata.key}", report)


def _lines(subject: str, report: DryRunReport) -> Iterator[str]:
    """Yield the lines for one object.

    If the plan leaves out necessary writes, the first line is the reason. The Events of the reconciliation come next,
    and then one line for each of the first `LISTED` actions. The last line has the number of further actions.
    """
    texts = [f"held: {report.held}"] if report.held else [*report.notices]
    texts += report.actions[:LISTED]
    if len(report.actions) > LISTED:
        texts.append(f"and {len(report.actions) - LISTED} more")
    for text in texts or ["nothing"]:
        yield f"{subject}: {text}"
