"""Scenes for the golden files: what the cluster has before a user runs the commands in the file."""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

from msgspec import Raw
from msgspec.structs import replace

from controller.events.event import EVENTS
from controller.kubevirt.annotations import (
    CLAIMED_BY,
    DRAINING,
    HISTORY,
    PARTITION,
    POOL_FINALIZER,
    ROLLED_BACK,
    ROLLING_UPDATE,
    STANDBY_STATE,
    TEMPLATE_HASH,
)
from controller.kubevirt.replicaset_types import ReplicaSet
from controller.kubevirt.resources import CONTROLLER_REVISIONS, DATA_VOLUMES, VMIS, VMS
from controller.replicas.history import Fact, encode_history, fact
from controller.runtime.reconciler import WARNED
from controller.takeover.virt_controller import DEPLOYMENTS, VIRT_CONTROLLER
from informers.errors import StatusError
from informers.meta import ObjectKey
from tests import builders, pool_builders
from tests.builders import NOW, seconds_ago
from tests.fakes.rules import wire
from tests.plugin import states
from tests.plugin.cluster import POOL, SET, Cluster
from tests.strategies import template_hash_of

HERD = ObjectKey("default", "testreplicaset")

Setup = Callable[[Cluster], object]


def both(cluster: Cluster) -> None:
    states.pool_at_rest(cluster)
    states.replica_set(cluster, updated=2)
    cluster.put(VMIS, builders.vmi("alone", labels={"own": "label"}))


def in_turn(*setups: Setup) -> Setup:
    def put(cluster: Cluster) -> None:
        for setup in setups:
            setup(cluster)

    return put


def without(setup: Setup, *plurals: str) -> Setup:
    """The same cluster for a user who may not read these resources."""
    return in_turn(setup, lambda cluster: cluster.forbidden.update(plurals))


def behind_kubevirt(setup: Setup, *flags: str) -> Setup:
    """The same cluster with KubeVirt. Its virt-controller has these flags."""
    return in_turn(setup, lambda cluster: cluster.install_kubevirt(*flags))


def changed_pool(setup: Setup = states.pool_at_rest, **change: Any) -> Setup:
    """A pool, at rest by default, with a change that nothing has handled yet."""
    return in_turn(setup, partial(states.change_pool, **change))


def pool_with_other_rules_for_names(cluster: Cluster) -> None:
    spec = pool_builders.vm_spec(volumes=[{"name": "key", "secret": {"secretName": "key"}}])
    old = pool_builders.pool(generation=1, spec=spec, nameGeneration={"appendIndexToSecretRefs": True})
    pool = pool_builders.pool(generation=2, spec=spec)
    cluster.put_pool(pool, old=old)


def pool_with_marks(cluster: Cluster, **fields: Any) -> None:
    """A pool of four VMs with disks: web-1 is not ready, web-3 is protected."""
    spec = pool_builders.vm_spec(disks=["data"])
    policy = {"selectionPolicy": {"sortPolicy": "DescendingOrder"}, "statePreservation": "Offline"}
    pool = pool_builders.pool(spec=spec, **{"replicas": 4, "scaleInStrategy": {"proactive": policy}, **fields})
    vms = [
        *pool_builders.vms(pool, 0, 2, spec=spec),
        pool_builders.vm("web-1", owner=pool, spec=spec, ready=False),
        pool_builders.vm("web-3", owner=pool, spec=spec, annotations={"vmherd.dev/protect": "true"}),
    ]
    cluster.put_pool(pool, vms)


def vms_that_cannot_join_their_pool(cluster: Cluster) -> None:
    """The VMs have another name, another owner, an end, and another disk."""
    disk = {"spec": {"dataVolumeTemplates": [{"metadata": {"name": "root-3"}}]}}
    vms = [
        pool_builders.vm("api-0"),
        pool_builders.vm("web-1", owner=pool_builders.pool("api", uid="other")),
        pool_builders.vm("web-2", deleting=True),
        pool_builders.vm("web-3", finalizers=()),
    ]
    cluster.put_pool(pool_builders.pool(), vms, ())
    cluster.server.change(VMS, vms[3].metadata.key, disk)


def template(number: int, **fields: Any) -> ReplicaSet:
    spec = json.dumps({"domain": {"devices": {}}, "hostname": f"v{number}"}).encode()
    return builders.replicaset(generation=number, spec=spec, **fields)


def put_set(cluster: Cluster, *, rolls: bool = False, vmis: Sequence[int] = (2, 2), **fields: Any) -> None:
    """A set with the templates 1, 2 and 3. Template 2 is the present one. `vmis` has the template of each VMI."""
    annotations = {ROLLING_UPDATE: "maxUnavailable=1"} if rolls else None
    owner = template(2, replicas=len(vmis), annotations=annotations, **fields)
    cluster.put(SET, owner)
    cluster.put(CONTROLLER_REVISIONS, *(builders.revision(template(number)) for number in (1, 2, 3)))
    for number, made_from in enumerate(vmis):
        labels = {**builders.LABELS, TEMPLATE_HASH: template_hash_of(template(made_from))}
        cluster.put(VMIS, builders.vmi(f"test{number}", owner=owner, labels=labels))


rolling_set: Final = partial(put_set, rolls=True)


def invalid_set(cluster: Cluster) -> None:
    rolling_set(cluster)
    cluster.server.change(SET, HERD, {"spec": {"template": {"metadata": {"labels": {"myvmi": "other"}}}}})


def set_with_a_broken_revision(cluster: Cluster) -> None:
    put_set(cluster)
    cluster.put(CONTROLLER_REVISIONS, replace(builders.revision(template(4)), data=Raw(b'{"template":7}')))


def set_without_a_revision(cluster: Cluster) -> None:
    cluster.put(SET, template(1))


def pool_that_the_status_describes(cluster: Cluster) -> None:
    counters = {"replicas": 3, "readyReplicas": 2, "updatedReplicas": 1}
    revisions = {"currentRevision": "web-4", "updateRevision": "web-7"}
    cluster.put(POOL, pool_builders.pool(status={**counters, **revisions, "printableStatus": "Updating"}))


def pools_in_two_namespaces(cluster: Cluster) -> None:
    for namespace in ("default", "shop"):
        cluster.put(POOL, pool_builders.pool(namespace=namespace, uid=f"uid-{namespace}"))


def two_pools_and_a_leader(cluster: Cluster) -> None:
    states.lease(cluster)
    states.pool_rollout(cluster)
    states.replica_set(cluster, updated=2)


def pool_without_vms(cluster: Cluster) -> None:
    cluster.put(POOL, pool_builders.pool("api", uid="uid-api", replicas=0))


def pool_of_held_vms(cluster: Cluster) -> None:
    pool = pool_builders.pool(replicas=6)
    finalizers = (pool_builders.OTHER_FINALIZER,)
    cluster.put_pool(pool, pool_builders.vms(pool, *range(6), deleting=True, finalizers=finalizers), ())


def pool_beside_a_disk(cluster: Cluster) -> None:
    """A pool whose next VM has the name of a disk without an owner."""
    pool = pool_builders.pool(spec=pool_builders.vm_spec(disks=["data"]), replicas=1)
    cluster.put_pool(pool, pool_builders.vms(pool, 0, spec=pool_builders.vm_spec(disks=["data"])))
    cluster.server.put(DATA_VOLUMES, {"metadata": {"namespace": "default", "name": "data-1"}})


def pool_with_an_api_warning(cluster: Cluster) -> None:
    states.pool_at_rest(cluster)
    for name in ("web", "other"):
        uid = pool_builders.pool().metadata.uid if name == "web" else "other"
        about = {"involvedObject": {"uid": uid}, "message": f'{WARNED}unknown field "spec.{name}"'}
        metadata = {"namespace": "default", "name": name}
        cluster.put(EVENTS, {"metadata": metadata, "lastTimestamp": wire(NOW - timedelta(minutes=3)), **about})


def pool_with_finalizers(cluster: Cluster) -> None:
    owner = pool_builders.pool()
    cluster.put(POOL, owner)
    cluster.put(VMS, *pool_builders.vms(owner, 0, finalizers=(POOL_FINALIZER,)))


def pool_whose_finalizer_stays(cluster: Cluster) -> None:
    pool_with_finalizers(cluster)
    down = StatusError("no", code=422, reason="Invalid")
    cluster.server.fault_for = lambda each: down if each.verb == "patch" and each.resource is POOL else None


def recorded_pool(cluster: Cluster, *, has_new_image: bool = False, has_leader: bool = False) -> None:
    """A pool that KubeVirt's controller wrote, with its revision and two VMs. Its status does not count updates."""
    recorded = json.loads(RECORDING.read_text())
    cluster.namespace = "demo"
    cluster.server.put(POOL, recorded["pool"])
    cluster.server.put(CONTROLLER_REVISIONS, recorded["revision"])
    for number in range(2):
        vm = {**recorded["stored"], "metadata": {**recorded["stored"]["metadata"], "name": f"web-{number}"}}
        vm["metadata"]["uid"] = f"uid-web-{number}"
        cluster.server.put(VMS, vm)
        cluster.put(VMIS, pool_builders.vmi(VMS.decode(json.dumps(vm).encode()), node=f"node-{number}"))
    if has_new_image:
        volume = {"containerDisk": {"image": "quay.io/containerdisks/fedora:41"}, "name": "root"}
        volumes = [volume, {"dataVolume": {"name": "data"}, "name": "data"}]
        template = {"spec": {"template": {"spec": {"volumes": volumes}}}}
        patch = {"spec": {"virtualMachineTemplate": template}, "metadata": {"generation": 2}}
        cluster.server.change(POOL, ObjectKey("demo", "web"), patch)
    if has_leader:
        states.lease(cluster)


def pool_with_other_disks_before(
    cluster: Cluster, *, size: str = "1Gi", storage_class: str = "fast", **fields: object
) -> None:
    """A pool of three VMs with the newest of two templates. The older one has disks of this size and class."""
    old = pool_builders.vm_spec(disks=["data"], size=size, storage_class=storage_class, image="v0")
    past = pool_builders.pool(generation=1, spec=old)
    pool = pool_builders.pool(generation=2, spec=pool_builders.vm_spec(disks=["data"]), **fields)
    vms = pool_builders.vms(pool, 0, 1, 2, revision="web-2")
    cluster.put_pool(pool, vms, old=past)


def set_without_hashes(cluster: Cluster) -> None:
    states.replica_set(cluster, updated=1)
    cluster.server.change(VMIS, ObjectKey("default", "test0"), {"metadata": {"labels": {TEMPLATE_HASH: None}}})


def set_while_virt_controller_restarts(cluster: Cluster) -> None:
    states.replica_set(cluster, outdated=1, updated=1)
    cluster.install_kubevirt("--rs-controller-threads=0")
    deployment = ObjectKey("kubevirt", VIRT_CONTROLLER)
    cluster.server.change(DEPLOYMENTS, deployment, {"status": {"updatedReplicas": 1}})


DRAIN: Final = "scale-in until 2026-08-01T12:00:00Z of uid"
REFUSED: Final = states.failure(f"error during scale out: {states.DENIED}", reason="FailedScaleOut", since_s=60)
OFFLINE: Final = {"scaleInStrategy": {"proactive": {"statePreservation": "Offline"}}}
RECORDING: Final = Path(__file__).parents[1] / "recordings" / "kubevirt-pool-revision.json"


def pool_with_a_history(cluster: Cluster) -> None:
    """A pool that was scaled and updated. A VM was healed twice since then."""
    facts = (
        fact(seconds_ago(7200), "Scaled", "from 3 to 2, by kube-controller-manager"),
        fact(seconds_ago(900), "RolledOut", "no VM is older than web-2"),
        Fact(seconds_ago(400), "SuccessfulDelete", "Deleted VM web-1: healing: not ready for 5m", 2, seconds_ago(90)),
    )
    states.pool_at_rest(cluster, annotations={HISTORY: encode_history(facts)})
    cluster.put(POOL, pool_builders.pool("api", uid="uid-api", annotations={HISTORY: "rubbish"}))


SCENES: Final[Mapping[str, Setup]] = {
    "list": both,
    "history-pool": states.pool_at_rest,
    "history-set": partial(put_set, vmis=(1, 2, 2)),
    "history-broken": set_with_a_broken_revision,
    "history-none": set_without_a_revision,
    "history-none-of-a-pool": lambda cluster: cluster.put(POOL, pool_builders.pool()),
    "history-none-behind-kubevirt": behind_kubevirt(set_without_a_revision),
    "history-forbidden": without(put_set, "controllerrevisions"),
    "history-without-vmis": without(put_set, "virtualmachineinstances"),
    "history-without-vms": without(states.pool_at_rest, "virtualmachines", "virtualmachineinstances"),
    "undo-pool": states.pool_at_rest,
    "undo-rules-for-names": pool_with_other_rules_for_names,
    "undo-one-revision": lambda cluster: cluster.put_pool(pool_builders.pool()),
    "undo-paused": partial(states.pool_at_rest, paused=True),
    "undo-argo": changed_pool(metadata={"labels": {"argocd.argoproj.io/instance": "shop"}}),
    "undo-flux": changed_pool(metadata={"labels": {"kustomize.toolkit.fluxcd.io/name": "shop"}}),
    "undo-dry-run": states.pool_at_rest,
    "undo-rolling-set": rolling_set,
    "undo-rolling-set-without-vmis": without(rolling_set, "virtualmachineinstances"),
    "undo-rolling-set-behind-kubevirt": behind_kubevirt(rolling_set),
    "undo-paused-set": partial(put_set, paused=True),
    "undo-invalid-set": invalid_set,
    "undo-set": partial(put_set, vmis=(1, 2, 2)),
    "undo-set-to-the-template-of-all": partial(put_set, vmis=(1, 1)),
    "rolled-back": states.pool_rolled_back,
    "restart-pool": states.pool_at_rest,
    "restart-set": rolling_set,
    "restart-nothing": put_set,
    "restart-opportunistic": partial(states.pool_at_rest, updateStrategy={"opportunistic": {}}),
    "resume-step": states.pool_in_steps,
    "resume-paused-step": changed_pool(states.pool_in_steps, spec={"paused": True}),
    "resume-finished-step": partial(states.pool_at_rest, annotations={PARTITION: "2:10m,0"}),
    "resume-finished-partition": partial(states.pool_at_rest, annotations={PARTITION: "2"}),
    "resume-returned": partial(states.pool_in_steps, **{ROLLED_BACK: "digest to web-2"}),
    "pause": both,
    "protect": both,
    "remove": both,
    "membership": both,
    "adopt-refused": vms_that_cannot_join_their_pool,
    "claim": partial(states.pool_at_rest, number=2, status={"replicas": 2}),
    "claim-outdated": states.pool_in_update,
    "claim-drains": partial(states.pool_with_marks, marks={CLAIMED_BY: "job", DRAINING: DRAIN}),
    "standby": partial(states.pool_with_marks, marks={STANDBY_STATE: "resting web-0"}),
    "history": pool_with_a_history,
    "scale": states.pool_at_rest,
    "scale-preview": pool_with_marks,
    "scale-without-disks": partial(pool_with_marks, scaleInStrategy=None),
    "list-counters": without(
        pool_that_the_status_describes, "virtualmachines", "virtualmachineinstances", "controllerrevisions"
    ),
    "list-sorted": in_turn(two_pools_and_a_leader, pool_without_vms),
    "list-nothing": lambda cluster: None,
    "not-served": lambda cluster: setattr(cluster, "served", ()),
    "one-vm": two_pools_and_a_leader,
    "api-warning": pool_with_an_api_warning,
    "deleted-without-controller": states.pool_deleted,
    "history-nothing-readable": without(both, "virtualmachines", "virtualmachineinstances", "controllerrevisions"),
    "list-one-type": without(both, "virtualmachineinstancereplicasets"),
    "list-no-type": without(both, "virtualmachineinstancereplicasets", "virtualmachinepools"),
    "plan": changed_pool(spec={"replicas": 3}),
    "plan-at-rest": both,
    "plan-new-disks": states.pool_with_new_disks,
    "plan-growing-disks": states.POOLS["growing-disks"],
    "plan-keeps-disks": states.POOLS["keeps-disks"],
    "plan-protected": states.POOLS["protected-from-new-disks"],
    "plan-many-disks": partial(states.pool_with_new_disks, replicas=12),
    "data": states.pool_in_update,
    "why-refused-creates": partial(states.pool_in_update, replicas=6, status=REFUSED),
    "why-many-finalizers": pool_of_held_vms,
    "why-without-kubevirts": without(behind_kubevirt(states.pool_at_rest), "kubevirts"),
    "several": both,
    "status": both,
    "status-unmanaged": partial(states.pool_in_update, updateStrategy={"unmanaged": {}}),
    "status-wrong-partition": partial(states.pool_in_update, annotations={PARTITION: "50%,-3"}),
    "status-not-observed": changed_pool(status={"observedGeneration": 1}),
    "status-behind-kubevirt": behind_kubevirt(partial(states.replica_set, outdated=2, updated=1, rolls=False)),
    "status-finished-behind-kubevirt": without(behind_kubevirt(partial(states.replica_set, updated=2)), "kubevirts"),
    "expose": both,
    "takeover": in_turn(Cluster.install_kubevirt, lambda cluster: cluster.put(POOL, pool_builders.pool(replicas=1))),
    "cleanup-one-namespace": pools_in_two_namespaces,
    "cleanup": pool_with_finalizers,
    "cleanup-fails": pool_whose_finalizer_stays,
    "cleanup-forbidden": without(both, "virtualmachinepools"),
    "scale-waits": pool_beside_a_disk,
    "scale-waits-for-hidden-disks": without(pool_beside_a_disk, "datavolumes", "persistentvolumeclaims"),
    "scale-unmanaged": partial(states.pool_at_rest, scaleInStrategy={"unmanaged": {}}),
    "recorded": recorded_pool,
    "recorded-new-image": partial(recorded_pool, has_new_image=True),
    "recorded-loops-stopped": behind_kubevirt(
        partial(recorded_pool, has_new_image=True, has_leader=True), "--pool-controller-threads=0"
    ),
    "recorded-behind-kubevirt": behind_kubevirt(partial(recorded_pool, has_new_image=True)),
    "undo-keeps-disks": partial(pool_with_other_disks_before, storage_class="slow", **OFFLINE),
    "undo-smaller-disks": partial(pool_with_other_disks_before, size="500Mi"),
    "undo-same-disks": partial(pool_with_other_disks_before, size="1024Mi"),
    "undo-other-disks": partial(pool_with_other_disks_before, storage_class="slow"),
    "undo-other-disks-without-vms": without(
        partial(pool_with_other_disks_before, storage_class="slow"), "virtualmachines"
    ),
    "undo-before-the-first-new-disk": states.pool_with_new_disks,
    "status-without-hashes": behind_kubevirt(set_without_hashes),
    "status-while-virt-controller-restarts": set_while_virt_controller_restarts,
    "status-without-kubevirts": without(
        behind_kubevirt(partial(states.replica_set, outdated=1, updated=1)), "kubevirts"
    ),
    "error-of-the-server": lambda cluster: cluster.answer_with(
        StatusError("etcd is down", code=500, reason="InternalError")
    ),
}
"""For each scene, a function that fills the cluster. The golden file of the scene has the commands."""
