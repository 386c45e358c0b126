"""Pools and sets in the states that the commands show."""

from collections.abc import Mapping, Sequence
from typing import Any

from controller.kubevirt.annotations import ROLLING_UPDATE, TEMPLATE_HASH
from controller.kubevirt.resources import VMIS
from controller.replicaset.intent import Intent, parse_intent
from tests import builders, pool_builders
from tests.plugin.cluster import SET, Cluster

BROKEN = "Back-off pulling image"


def pool_in_update(cluster: Cluster, *, stalled: bool = False, **fields: Any) -> None:
    """A pool of four VMs. Two VMs are outdated, one is updated, and one is updated and broken. One VM may be
    unavailable.
    """
    old = pool_builders.pool(generation=2)
    fields = {"replicas": 4, "maxUnavailable": 1, **fields}
    pool = pool_builders.pool(generation=3, spec=pool_builders.vm_spec(image="v2"), **fields)
    waits_s = 900 if stalled else 60
    done = pool_builders.vm("web-0", owner=pool, revision="web-3")
    broken = pool_builders.vm(
        "web-1", owner=pool, revision="web-3", ready=False, ready_for_s=waits_s, printable="ImagePullBackOff"
    )
    late = pool_builders.vms(pool, 2, 3, revision="web-2")
    vmis = [pool_builders.vmi(each) for each in (done, *late)]
    vmis.append(
        pool_builders.vmi(broken, ready=False, ready_for_s=waits_s, phase="Scheduling", age_s=waits_s, reason=BROKEN)
    )
    cluster.put_pool(pool, [done, broken, *late], vmis, old=old)


def pool_at_rest(cluster: Cluster, number: int = 2, **fields: Any) -> None:
    """A pool whose VMs are ready and up to date, with one earlier revision."""
    old = pool_builders.pool(generation=1, spec=pool_builders.vm_spec(image="v0"))
    pool = pool_builders.pool(generation=2, replicas=number, **fields)
    vms = pool_builders.vms(pool, *range(number), revision="web-2")
    cluster.put_pool(pool, vms, old=old)


def large_pool(cluster: Cluster, number: int = 200, *, sick: int = 6, name: str = "web", **broken: Any) -> None:
    """A pool whose last VMs are sick."""
    pool = pool_builders.pool(name, uid=f"uid-of-{name}", replicas=number)
    broken = {"ready": False, "printable": "ErrorUnschedulable", "ready_for_s": 60, **broken}
    vms = pool_builders.vms(pool, *range(number - sick), revision=f"{name}-1")
    lost = pool_builders.vms(pool, *range(number - sick, number), revision=f"{name}-1", **broken)
    cluster.put_pool(pool, [*vms, *lost], map(pool_builders.vmi, vms))


def set_of(
    cluster: Cluster, vmis: Sequence[Mapping[str, Any]] = ({}, {}), annotations: Mapping[str, str] = {}, **fields: Any
) -> None:
    """A set with a VMI for each mapping. `old` in a mapping gives the VMI an older template."""
    owner = builders.replicaset(**{"replicas": len(vmis), "annotations": dict(annotations) or None, **fields})
    intent = parse_intent(owner)
    current = intent.template.hash if isinstance(intent, Intent) else "unknown"
    cluster.put(SET, owner)
    for number, each in enumerate(vmis):
        changes = dict(each)
        labels = {**builders.LABELS, TEMPLATE_HASH: "oldoldoldo" if changes.pop("old", False) else current}
        cluster.put(VMIS, builders.vmi(f"test{number}", owner=owner, labels=labels, **changes))


def replica_set(cluster: Cluster, *, outdated: int = 0, updated: int = 0, rolls: bool = True, **fields: Any) -> None:
    """A set with ready VMIs of its template, and with ready VMIs of an older template."""
    annotations = {ROLLING_UPDATE: "maxUnavailable=1"} if rolls else {}
    set_of(cluster, [*[{"old": True}] * outdated, *[{}] * updated], annotations, **fields)
