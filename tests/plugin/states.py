"""Pools and sets in each state that the commands show. Each state is a function that fills a cluster."""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from controller.config.settings import Config, published
from controller.kubevirt import annotations as names
from controller.kubevirt.resources import VMIS, VMS
from controller.leaderelection.lease import LEASES, SETTINGS
from controller.pool.spec.partition import step_note
from controller.replicaset.back_off import annotation_of
from controller.replicaset.intent import Intent, parse_intent
from informers.meta import ObjectKey
from tests import builders, pool_builders
from tests.builders import NOW, seconds_ago
from tests.fakes.rules import wire
from tests.plugin.cluster import POOL, SET, Cluster


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
        pool_builders.vmi(
            broken, ready=False, ready_for_s=waits_s, phase="Scheduling", age_s=waits_s, reason="Back-off pulling image"
        )
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
        labels = {**builders.LABELS, names.TEMPLATE_HASH: "oldoldoldo" if changes.pop("old", False) else current}
        cluster.put(VMIS, builders.vmi(f"test{number}", owner=owner, labels=labels, **changes))


def replica_set(cluster: Cluster, *, outdated: int = 0, updated: int = 0, rolls: bool = True, **fields: Any) -> None:
    """A set with ready VMIs of its template, and with ready VMIs of an older template."""
    annotations = {names.ROLLING_UPDATE: "maxUnavailable=1"} if rolls else {}
    set_of(cluster, [*[{"old": True}] * outdated, *[{}] * updated], annotations, **fields)


State = Callable[[Cluster], None]
FAILING: Final = ("web-1", "web-2")
SET_NAME: Final = "testreplicaset"
QUOTA: Final = 'virtualmachines.kubevirt.io "web-2" is forbidden: exceeded quota: few, used: 2, limited: 2'
POSTPONED: Final = (
    "default/web-2 waits: the disk data-2 belongs to api-2; give the dataVolumeTemplates of each pool own names"
)
DENIED: Final = "admission webhook \"policy.example.org\" denied the request: no label 'team'"


def lease(
    cluster: Cluster, *, renewed_s: float = 2, holder: str = "vmherd-7c9f", settings: Config | None = None
) -> None:
    """Store a lease that its holder renewed `renewed_s` seconds ago. `settings` are those of the holder."""
    renewed = (NOW - timedelta(seconds=renewed_s)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed}
    annotations = {SETTINGS: published(settings)} if settings is not None else {}
    metadata = {"name": "vmherd", "namespace": "vmherd-system", "uid": "lease", "annotations": annotations}
    cluster.server.put(LEASES, {"metadata": metadata, "spec": spec})


def change_pool(cluster: Cluster, **change: Any) -> None:
    cluster.server.change(POOL, ObjectKey("default", "web"), change)


def failure(message: str, *, reason: str, since_s: float) -> dict[str, Any]:
    condition = {"type": "ReplicaFailure", "status": "True", "reason": reason, "message": message}
    return {"conditions": [{**condition, "lastTransitionTime": wire(seconds_ago(since_s))}]}


pool_rollout: Final = partial(pool_in_update, maxUnavailable="25%", autohealing={})


def pool_becomes_available(cluster: Cluster) -> None:
    """An update that waits until its first VM has been ready for two minutes."""
    pool_in_update(cluster, annotations={names.MIN_READY: "120"})
    label = {"metadata": {"labels": {"kubevirt.io/vm-pool-revision-name": "web-3"}}}
    ready = [{"type": "Ready", "status": "True", "lastTransitionTime": wire(seconds_ago(50))}]
    for resource in (VMS, VMIS):
        status = {"conditions": ready, "printableStatus": "Running", "phase": "Running"}
        cluster.server.change(resource, ObjectKey("default", "web-1"), {**label, "status": status})


def pool_failing(cluster: Cluster, *, waits_s: float, failures: int, **fields: Any) -> None:
    """A pool of four VMs with healing. The VM web-1 does not start."""
    pool = pool_builders.pool(replicas=4, autohealing={}, **fields)
    state = {"ready": False, "printable": "CrashLoopBackOff", "failures": failures, "ready_for_s": waits_s}
    broken = pool_builders.vm("web-1", owner=pool, **state)
    vms = pool_builders.vms(pool, 0, 2, 3)
    cluster.put_pool(pool, [*vms, broken], map(pool_builders.vmi, vms))


def pool_after_healings(cluster: Cluster) -> None:
    """The VM fails again after two healings, so the next healing waits."""
    record = f'{{"1":["uid-of-an-earlier-vm",2,"{wire(seconds_ago(5))}"]}}'
    pool_failing(cluster, waits_s=4, failures=3, annotations={names.HEALED: record})


def pool_after_failed_create(cluster: Cluster, text: str, *, since_s: float = 120) -> None:
    """A pool whose third VM could not be created, because of this text."""
    pool_at_rest(cluster)
    status = failure(f"error during scale out: {text}", reason="FailedScaleOut", since_s=since_s)
    change_pool(cluster, spec={"replicas": 3}, status=status)


pool_quota: Final = partial(pool_after_failed_create, text=QUOTA)


def pool_with_new_disks(cluster: Cluster, *, size: str = "1Gi", storage_class: str = "slow", **fields: Any) -> None:
    """A pool whose new template changes the disks of its VMs."""
    marks, number = fields.pop("marks", {}), fields.get("replicas", 3)
    old = pool_builders.pool(generation=1, spec=pool_builders.vm_spec(disks=["data"]))
    spec = pool_builders.vm_spec(disks=["data"], size=size, storage_class=storage_class)
    pool = pool_builders.pool(**{"generation": 2, "maxUnavailable": 1, "spec": spec, **fields})
    vms = pool_builders.vms(pool, *range(number), annotations=marks)
    cluster.put_pool(pool, vms, old=old)


def pool_successor_refused(cluster: Cluster) -> None:
    """The dry run of the successor was refused, so no VM is deleted."""
    pool_with_new_disks(cluster, maxUnavailable=1)
    text = f"error during VM update: the successor of web-2 would be refused: {DENIED}"
    change_pool(cluster, status=failure(text, reason="FailedUpdate", since_s=120))


def pool_healing_held(cluster: Cluster, marks: Mapping[str, str] = {}, state: str = "ErrImagePull") -> None:
    """A VM whose failure a new disk does not cure."""
    spec = pool_builders.vm_spec(disks=["data"])
    pool = pool_builders.pool(replicas=4, autohealing={}, spec=spec)
    own = pool_builders.vm_spec(disks=["data-1"])
    bad = pool_builders.vm(
        "web-1", owner=pool, ready=False, printable=state, ready_for_s=900, spec=own, annotations=marks
    )
    vms = pool_builders.vms(pool, 0, 2, 3)
    cluster.put_pool(pool, [*vms, bad], map(pool_builders.vmi, vms))


def pool_healing_blocked(cluster: Cluster, *, waits_s: float = 900, failures: int = 3) -> None:
    """Two of three VMs fail, and one may fail."""
    pool = pool_builders.pool(replicas=3, autohealing={}, annotations={names.MAX_UNHEALTHY: "1"}, maxUnavailable="100%")
    state = {"ready": False, "printable": "CrashLoopBackOff", "failures": failures, "ready_for_s": waits_s}
    vms = [pool_builders.vm("web-0", owner=pool), *(pool_builders.vm(each, owner=pool, **state) for each in FAILING)]
    cluster.put_pool(pool, vms, [pool_builders.vmi(vms[0])])


def pool_stopped(cluster: Cluster) -> None:
    pool_at_rest(cluster)
    for name in ("web-0", "web-1"):
        stopped = {"spec": {"runStrategy": "Halted"}, "status": {"conditions": [], "printableStatus": "Stopped"}}
        cluster.server.change(VMS, ObjectKey("default", name), stopped)
        cluster.server.remove(VMIS, ObjectKey("default", name))


def pool_takeover(cluster: Cluster) -> None:
    """KubeVirt is installed, its loops are stopped, and the first update waits for the user."""
    cluster.install_kubevirt("--pool-controller-threads=0", "--rs-controller-threads=0")
    pool_in_update(cluster)
    pool = cluster.server.find(POOL, ObjectKey("default", "web"))
    mark = f"{names.TAKEOVER_HELD} 1 {pool_builders.intent_of(pool).template.digest}"
    change_pool(cluster, metadata={"annotations": {names.TAKEOVER: mark}})


def pool_with_marks(cluster: Cluster, marks: Mapping[str, str]) -> None:
    """A pool with one VM too many. Each VM has these annotations."""
    pool = pool_builders.pool(replicas=1)
    vms = pool_builders.vms(pool, 0, 1, annotations=marks)
    cluster.put_pool(pool, vms)


def pool_draining(cluster: Cluster) -> None:
    pool = pool_builders.pool(replicas=1, annotations={names.DRAIN_SECONDS: "900"})
    mark = {names.DRAINING: "scale-in until 2026-08-01T12:10:00Z of uid-web-1"}
    over = {names.BUSY_UNTIL: "2026-08-01T11:59:00Z"}
    vms = (*pool_builders.vms(pool, 0, annotations=over), *pool_builders.vms(pool, 1, annotations=mark))
    cluster.put_pool(pool, vms)


def pool_drains_for_update(cluster: Cluster) -> None:
    fields = {"annotations": {names.DRAIN_SECONDS: "900"}, "maxUnavailable": 1}
    pool = pool_builders.pool(generation=3, spec=pool_builders.vm_spec(image="v2"), **fields)
    mark = {names.DRAINING: "update until 2026-08-01T12:10:00Z of uid-web-2"}
    late = pool_builders.vms(pool, 0, 1, revision="web-2")
    drains = pool_builders.vms(pool, 2, revision="web-3", annotations=mark)
    vmis = [pool_builders.vmi(each, revision="web-2") for each in (*late, *drains)]
    cluster.put_pool(pool, (*late, *drains), vmis, old=pool_builders.pool(generation=2))


def pool_lost(cluster: Cluster) -> None:
    """The node of a VM does not answer, and a substitute does its work."""
    pool = pool_builders.pool(replicas=2, annotations={names.SUBSTITUTE_LOST_AFTER: "300"})
    lost = pool_builders.vm("web-0", owner=pool, ready=False, ready_for_s=400)
    vms = (*pool_builders.vms(pool, 1), *pool_builders.vms(pool, 2, annotations={names.SUBSTITUTE: "true"}))
    vmis = [pool_builders.vmi(lost, ready=False, reason=None, ready_for_s=400), *map(pool_builders.vmi, vms)]
    cluster.put_pool(pool, (lost, *vms), vmis)


def pool_lost_in_update(cluster: Cluster) -> None:
    """Another VM does the work of the lost one, so the update waits only for the one that is not ready."""
    fields = {"spec": pool_builders.vm_spec(image="v2"), "annotations": {names.SUBSTITUTE_LOST_AFTER: "300"}}
    pool, late = pool_builders.pool(generation=2, maxUnavailable=1, **fields), {"revision": "web-1"}
    lost = pool_builders.vm("web-0", owner=pool, ready=False, ready_for_s=400, **late)
    sick = pool_builders.vm("web-1", owner=pool, ready=False, revision="web-2")
    vms = [pool_builders.vm("web-2", owner=pool, **late)]
    vms += pool_builders.vms(pool, 3, annotations={names.SUBSTITUTE: "true"}, **late)
    vmis = [pool_builders.vmi(lost, ready=False, reason=None, ready_for_s=400), pool_builders.vmi(sick, ready=False)]
    cluster.put_pool(pool, (lost, sick, *vms), [*vmis, *map(pool_builders.vmi, vms)], old=pool_builders.pool())


def pool_deleted(cluster: Cluster) -> None:
    """A pool that keeps disks is being deleted, and another program's finalizer delays a VM."""
    policy = {"proactive": {"statePreservation": "Offline"}}
    finalizers = (names.POOL_FINALIZER, "foregroundDeletion")
    pool = pool_builders.pool(replicas=2, deleting=True, finalizers=finalizers, scaleInStrategy=policy)
    held = pool_builders.vm("web-0", owner=pool, deleting=True, finalizers=(pool_builders.OTHER_FINALIZER,))
    cluster.put_pool(pool, [held])


def pool_rolled_back(cluster: Cluster) -> None:
    """A pool whose two VMs have returned from web-3 to web-2."""
    old, spec = pool_builders.pool(generation=2), pool_builders.vm_spec(image="v2")
    digest = pool_builders.intent_of(pool_builders.pool(spec=spec)).template.digest
    annotations = {names.ROLLBACK: "stalled", names.READY_REVISION: "web-2", names.ROLLED_BACK: f"{digest} to web-2"}
    pool = pool_builders.pool(generation=3, replicas=2, spec=spec, annotations=annotations)
    vms = pool_builders.vms(pool, 0, 1, revision="web-2")
    cluster.put_pool(pool, vms, old=old)


def pool_in_steps(cluster: Cluster, **notes: str) -> Any:
    """A pool of three VMs. The VM of the first step has been updated a minute ago."""
    old = pool_builders.pool(generation=2)
    spec, status = pool_builders.vm_spec(image="v2"), {"replicas": 3, "readyReplicas": 3, "updatedReplicas": 1}
    annotations = {names.PARTITION: "2:10m,0", **notes}
    pool = pool_builders.pool(
        generation=3, spec=spec, annotations=annotations, status={**status, "observedGeneration": 3}
    )
    late, done = pool_builders.vms(pool, 0, 1, revision="web-2"), pool_builders.vms(pool, 2, revision="web-3")
    vmis = [*map(pool_builders.vmi, late), *(pool_builders.vmi(each, ready_for_s=60) for each in done)]
    cluster.put_pool(pool, [*late, *done], vmis, old=old)
    return pool


def pool_in_first_step(cluster: Cluster) -> None:
    pool = pool_in_steps(cluster)
    note = step_note(pool.metadata, pool_builders.intent_of(pool).template.digest, 1, seconds_ago(60))
    pool_in_steps(cluster, **{names.PARTITION_STEP: note})


def pool_invalid(cluster: Cluster) -> None:
    """A pool whose spec became invalid after a failed write."""
    pool_at_rest(cluster, maxUnavailable="0%")
    status = failure(f"error during scale out: {QUOTA}", reason="FailedScaleOut", since_s=900)
    change_pool(cluster, status={**status, "updateRevision": "web-2"})


def pool_scale_in(cluster: Cluster) -> None:
    pool_at_rest(cluster, 3)
    change_pool(cluster, spec={"replicas": 2})


ROLLING: Final = {names.ROLLING_UPDATE: "maxUnavailable=50%"}
STARTING: Final = {"ready": False, "phase": "Scheduling", "reason": "GuestNotRunning", "age_s": 60, "ready_for_s": 60}


PROTECTED: Final = {"annotations": {names.PROTECT: "true"}}
HANGING: Final = {"ready": False, "age_s": 600, "ready_for_s": 100, "reason": "GuestAgentLost"}

set_rollout: Final = partial(set_of, vmis=[{"old": True}, STARTING], annotations=ROLLING)


def set_back_off(cluster: Cluster) -> None:
    """A VMI that failed three times in a row. Its replacement waits."""
    failed = {"phase": "Failed", "ready": False, "age_s": 40, "ready_for_s": 5, "entered_s": {"Failed": 5}}
    trial = {"vmherd.dev/early-failures": annotation_of(2, seconds_ago(90), seconds_ago(40))}
    set_of(cluster, [{}, {**failed, "annotations": trial}], replicas=2)


def set_quota(cluster: Cluster) -> None:
    set_of(cluster, replicas=3)
    status = failure(QUOTA.replace("machines", "machineinstances"), reason="FailedCreate", since_s=120)
    cluster.server.change(SET, ObjectKey("default", SET_NAME), {"status": status})


def set_deleted(cluster: Cluster) -> None:
    owner = builders.replicaset(replicas=1, deleting=True)
    owner = replace(owner, metadata=replace(owner.metadata, finalizers=("foregroundDeletion",)))
    cluster.put(SET, owner)
    cluster.put(VMIS, builders.vmi("test0", owner=owner, labels=builders.LABELS))


POOLS: Final[Mapping[str, State]] = {
    "rollout": pool_rollout,
    "stalled": partial(pool_in_update, stalled=True),
    "becomes-available": pool_becomes_available,
    "before-healing": partial(pool_failing, waits_s=60, failures=1),
    "healing": partial(pool_failing, waits_s=900, failures=3),
    "after-healings": pool_after_healings,
    "quota": pool_quota,
    "create-refused": partial(pool_after_failed_create, text=DENIED, since_s=900),
    "new-disks": pool_with_new_disks,
    "growing-disks": partial(pool_with_new_disks, size="2Gi", storage_class="fast"),
    "keeps-disks": partial(pool_with_new_disks, scaleInStrategy={"proactive": {"statePreservation": "Offline"}}),
    "protected-from-new-disks": partial(pool_with_new_disks, marks={names.PROTECT: "True"}),
    "successor-refused": pool_successor_refused,
    "create-postponed": partial(pool_after_failed_create, text=POSTPONED),
    "healing-held": pool_healing_held,
    "protected-from-healing": partial(pool_healing_held, marks={names.PROTECT: "yes"}, state="CrashLoopBackOff"),
    "healing-blocked": pool_healing_blocked,
    "healing-will-be-blocked": partial(pool_healing_blocked, waits_s=60, failures=0),
    "stopped": pool_stopped,
    "paused": partial(pool_in_update, paused=True),
    "partition": partial(pool_in_update, annotations={names.PARTITION: "3"}),
    "takeover-held": pool_takeover,
    "protected": partial(pool_with_marks, marks={names.PROTECT: "true"}),
    "busy": partial(pool_with_marks, marks={names.BUSY_UNTIL: "2026-08-01T14:00:00Z"}),
    "draining": pool_draining,
    "drains-for-update": pool_drains_for_update,
    "lost": pool_lost,
    "lost-in-update": pool_lost_in_update,
    "deleted": pool_deleted,
    "invalid": pool_invalid,
    "rolled-back": pool_rolled_back,
    "steps": pool_in_first_step,
    "scale-in": pool_scale_in,
    "at-rest": pool_at_rest,
}
SETS: Final[Mapping[str, State]] = {
    "rollout": set_rollout,
    "stalled": partial(
        set_of, vmis=[{"old": True}, {**STARTING, "age_s": 900, "ready_for_s": 900}], annotations=ROLLING
    ),
    "back-off": set_back_off,
    "unready": partial(set_of, vmis=[{}, HANGING], annotations={names.REPLACE_UNREADY_AFTER: "300"}),
    "quota": set_quota,
    "paused": partial(set_of, vmis=[{"old": True}, {}], paused=True, annotations=ROLLING),
    "no-rolling-update": partial(set_of, vmis=[{"old": True}, {}]),
    "protected": partial(set_of, vmis=[PROTECTED, PROTECTED], replicas=1),
    "deleted": set_deleted,
    "invalid": partial(set_of, vmis=[{}], match_labels={"other": "label"}),
    "at-rest": set_of,
}
STATES: Final[Mapping[str, tuple[State, str]]] = {
    **{f"pool-{name}": (state, "vmpool/web") for name, state in POOLS.items()},
    **{f"set-{name}": (state, f"vmirs/{SET_NAME}") for name, state in SETS.items()},
}
"""Each state, and the name of its pool or set on a command line."""
