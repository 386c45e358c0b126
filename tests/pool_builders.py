"""Builds pools and their objects for tests. The defaults are complete objects."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, TypeAlias

import msgspec
from msgspec import Raw

from controller import kinds
from controller.apimachinery.owner_references import controller_reference
from controller.kubevirt.annotations import POOL_FINALIZER, REVISION_NAME, STANDBY_STATE
from controller.kubevirt.pool_types import Pool
from controller.kubevirt.resources import VMS
from controller.kubevirt.standby import note_of
from controller.kubevirt.vm_types import ControllerRevision, VirtualMachine
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.kubevirt.vms import VMI_NOT_EXISTS, ready_condition
from controller.pool.members import situation
from controller.pool.members.machine import Machine
from controller.pool.members.revisions import Revisions, read_revisions
from controller.pool.members.rosters import Downtimes, PoolRosters
from controller.pool.members.situation import Situation
from controller.pool.members.snapshot import REVISION_INDEXES, VM_INDEXES, Limits, Snapshot, Stores
from controller.pool.members.unready_periods import UnreadyPeriod
from controller.pool.rules import PoolRules
from controller.pool.spec.intent import Intent, parse_intent
from controller.pool.spec.policies import keeps_disks
from controller.pool.spec.template import Template, parse_template
from controller.pool.wiring import OWNER_CACHE
from controller.runtime.execute.refusals import Refusals
from informers.meta import ObjectMeta, OwnerReference
from informers.store import Store
from tests import builders
from tests.builders import ANOTHER_CONTROLLER, NOW, seconds_ago

Json: TypeAlias = dict[str, Any]

POOLS = kinds.POOLS.resource()
LABELS: Mapping[str, str] = {"app": "web"}
OTHER_FINALIZER = "example.org/other"


def vm_spec(
    *,
    image: str = "v1",
    disks: Iterable[str] = (),
    size: str = "1Gi",
    storage_class: str = "fast",
    labels: Mapping[str, str] = LABELS,
    node_selector: Mapping[str, str] | None = None,
    volumes: Iterable[Json] = (),
    run_strategy: str = "Always",
) -> Json:
    """A VM spec that boots a container image. For each name in `disks`, it has a dataVolumeTemplate, a volume and a
    disk.
    """
    disks = tuple(disks)
    all_volumes = [
        {"name": "root", "containerDisk": {"image": image}},
        *({"name": name, "dataVolume": {"name": name}} for name in disks),
        *volumes,
    ]
    inner: Json = {
        "domain": {"devices": {"disks": [{"name": each["name"], "disk": {"bus": "virtio"}} for each in all_volumes]}},
        "volumes": all_volumes,
    }
    if node_selector is not None:
        inner["nodeSelector"] = dict(node_selector)
    spec: Json = {"runStrategy": run_strategy, "template": {"metadata": {"labels": dict(labels)}, "spec": inner}}
    if disks:
        request = {"storage": {"storageClassName": storage_class, "resources": {"requests": {"storage": size}}}}
        spec["dataVolumeTemplates"] = [{"metadata": {"name": name}, "spec": request} for name in disks]
    return spec


def pool(
    name: str = "web",
    *,
    namespace: str = "default",
    uid: str = "uid-of-the-pool",
    version: str = "1",
    generation: int = 1,
    annotations: Mapping[str, str] | None = None,
    finalizers: Iterable[str] = (POOL_FINALIZER,),
    deleting: bool = False,
    labels: Mapping[str, str] | None = LABELS,
    template_annotations: Mapping[str, str] | None = None,
    spec: Json | None = None,
    status: Json | None = None,
    **fields: object,
) -> Pool:
    """A valid pool of three VMs.

    `labels`, `template_annotations` and `spec` belong to the template. `fields` are fields of the pool's spec with
    their JSON names (`replicas`, `maxUnavailable`, `scaleInStrategy` ...). A field with the value None is left out.
    """
    meta = {"labels": labels, "annotations": template_annotations}
    template = {"metadata": meta, "spec": vm_spec() if spec is None else spec}
    wire = {"replicas": 3, "selector": {"matchLabels": LABELS}, "virtualMachineTemplate": template, **fields}
    metadata = {
        "name": name,
        "namespace": namespace,
        "uid": uid,
        "resourceVersion": version,
        "generation": generation,
        "creationTimestamp": seconds_ago(7200),
        "deletionTimestamp": seconds_ago(1) if deleting else None,
        "annotations": annotations,
        "finalizers": tuple(finalizers) or None,
    }
    given = {field: value for field, value in wire.items() if value is not None}
    return POOLS.decode(msgspec.json.encode({"metadata": metadata, "spec": given, "status": status}))


def vm(
    name: str = "web-0",
    *,
    owner: Pool | None = None,
    owners: Iterable[OwnerReference] = (),
    namespace: str = "default",
    uid: str | None = None,
    version: str = "1",
    labels: Mapping[str, str] | None = LABELS,
    annotations: Mapping[str, str] | None = None,
    finalizers: Iterable[str] | None = None,
    age_s: float = 3600,
    deleting: bool = False,
    foreground: bool = False,
    revision: str | None = "web-1",
    spec: Json | None = None,
    ready: bool | None = True,
    ready_for_s: float = 1800,
    printable: str | None = "Running",
    failures: int | None = None,
    snapshot: str | None = None,
    conditions: Iterable[Json] = (),
) -> VirtualMachine:
    """A VM that is ready. `owner` is its controller. `conditions` are its conditions other than Ready.

    By default, the VM has the pool finalizer, unless `owner` keeps no disks and the VM is not being deleted.

    `revision=None` leaves out the revision label. `ready=None` leaves out the Ready condition. `ready_for_s` is the
    time since the Ready condition last changed. If `foreground` is true, the VM is in foreground deletion. `snapshot`
    is the name of a VM snapshot that is in progress.
    """
    labels = {**(labels or {}), **({REVISION_NAME: revision} if revision is not None else {})}
    if finalizers is None:
        needs_none = owner is not None and not (deleting or foreground or keeps_disks(owner.spec))
        finalizers = () if needs_none else (POOL_FINALIZER,)
    ready_now = "True" if ready else "False"
    condition = {"type": "Ready", "status": ready_now, "lastTransitionTime": seconds_ago(ready_for_s)}
    if printable == "Stopped":
        condition["reason"] = VMI_NOT_EXISTS
    references = (*owners, *((controller_reference(POOLS, owner.metadata),) if owner is not None else ()))
    document = {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{name}" if uid is None else uid,
            "resourceVersion": version,
            "creationTimestamp": seconds_ago(age_s),
            "deletionTimestamp": seconds_ago(1) if deleting or foreground else None,
            "labels": labels or None,
            "annotations": _with_name(annotations, name),
            "finalizers": (*finalizers, *(("foregroundDeletion",) if foreground else ())) or None,
            "ownerReferences": references or None,
        },
        "spec": _spec_of(owner, name) if spec is None else spec,
        "status": {
            "printableStatus": printable,
            "startFailure": None if failures is None else {"consecutiveFailCount": failures},
            "conditions": [*([] if ready is None else [condition]), *conditions] or None,
            "snapshotInProgress": snapshot,
        },
    }
    return VMS.decode(msgspec.json.encode(document))


def _with_name(annotations: Mapping[str, str] | None, name: str) -> Mapping[str, str] | None:
    """The annotations, in which the mark of a standby has the name of its VM."""
    mark = (annotations or {}).get(STANDBY_STATE)
    return annotations if mark is None else {**(annotations or {}), **note_of(mark, name)}


def _spec_of(owner: Pool | None, name: str) -> Json:
    """The default spec of a VM, with the disks of the pool's template."""
    template = parse_template(owner.spec) if owner is not None else None
    disks = [f"{disk}-{name.rpartition('-')[2]}" for disk in template.disks] if isinstance(template, Template) else []
    return vm_spec(disks=disks)


def vms(owner: Pool, *ordinals: int, **changes: Any) -> tuple[VirtualMachine, ...]:
    """The pool's VMs with these ordinals. `changes` are keywords of `vm` and apply to each VM."""
    return tuple(vm(f"{owner.metadata.name}-{ordinal}", owner=owner, **changes) for ordinal in ordinals)


def vmi(of: VirtualMachine, *, revision: str | None = "", **changes: Any) -> VirtualMachineInstance:
    """The VMI of this VM.

    By default, the VMI has the revision of the VM. With `revision=None`, the VMI has no revision label. The other
    keywords are those of `builders.vmi`.
    """
    revision_label = (of.metadata.labels or {}).get(REVISION_NAME) if revision == "" else revision
    labels = {**LABELS, **({REVISION_NAME: revision_label} if revision_label is not None else {})}
    reference = controller_reference(VMS, of.metadata)
    defaults = {"namespace": of.metadata.namespace, "owners": (reference,), "labels": labels}
    return builders.vmi(of.metadata.name, **{**defaults, **changes})


def revision(
    owner: Pool,
    name: str | None = None,
    *,
    number: int | None = None,
    owned: bool | None = True,
    deleting: bool = False,
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
) -> ControllerRevision:
    """A revision that stores this pool's spec. `owned=False` sets an ownerReference to another owner, `owned=None` sets
    none.
    """
    number = (owner.metadata.generation or 0) if number is None else number
    name = f"{owner.metadata.name}-{number}" if name is None else name
    reference = controller_reference(POOLS, owner.metadata) if owned else ANOTHER_CONTROLLER
    metadata = ObjectMeta(
        name=name,
        namespace=owner.metadata.namespace,
        uid=f"uid-of-revision-{name}",
        resource_version="1",
        deletion_timestamp=seconds_ago(1) if deleting else None,
        owner_references=None if owned is None else (reference,),
        annotations=annotations,
        labels=labels,
    )
    return ControllerRevision(metadata=metadata, revision=number, data=Raw(msgspec.json.encode(owner.spec)))


def stores(
    owner: Pool | None,
    vms: Iterable[VirtualMachine] = (),
    *,
    vmis: Iterable[VirtualMachineInstance] = (),
    revisions: Iterable[ControllerRevision] = (),
) -> Stores:
    """Caches that contain exactly these objects."""
    indexes = (OWNER_CACHE.indexes, VM_INDEXES, {}, REVISION_INDEXES)
    caches: Stores = Stores(*(Store(indexes=each) for each in indexes))
    for store, objects in zip(caches, ((owner,) if owner is not None else (), vms, vmis, revisions), strict=True):
        for each in objects:
            store.apply(each)
    return caches


def rules_of(caches: Stores, limits: Limits | None = None) -> PoolRules:
    """The rules of pools, with rosters that follow these caches."""
    return PoolRules(caches, POOLS, limits or Limits(), PoolRosters(caches.vms, caches.vmis), Refusals())


def snapshot(
    owner: Pool,
    vms: Iterable[VirtualMachine] = (),
    *,
    vmis: Iterable[VirtualMachineInstance] | None = None,
    revisions: Iterable[ControllerRevision] | None = None,
    now: datetime = NOW,
    settled: bool = True,
    unready_before: Mapping[str, UnreadyPeriod] | None = None,
    downtimes: Downtimes | None = None,
    **limits: Any,
) -> Snapshot:
    """The snapshot of a pool. The cluster contains only the given objects. `limits` are fields of Limits.

    If `vmis` is None, each VM has a VMI. Each VMI became ready or unready at the same time as its VM. If `revisions` is
    None, there is one revision with the number 1 and the pool's spec. `unready_before` contains the unready periods of
    an earlier snapshot. Several snapshots can share their unready periods in `downtimes`.
    """
    vms = tuple(vms)
    if vmis is None:
        vmis = [vmi(each, **_readiness(each)) for each in vms]
    if revisions is None:
        revisions = [revision(owner, number=1)]
    caches = stores(owner, vms, vmis=vmis, revisions=revisions)
    known = Downtimes(unready_before) if downtimes is None else downtimes
    rosters = PoolRosters(caches.vms, caches.vmis, {owner.metadata.key: known})
    rules = PoolRules(caches, POOLS, Limits(**limits), rosters, Refusals())
    seen = rules.take_snapshot(owner.metadata.key, now=now, settled=settled)
    assert seen is not None
    return seen


def periods_after(*args: Any, **facts: Any) -> Mapping[str, UnreadyPeriod]:
    """The unready periods after a snapshot. The arguments are those of `snapshot`."""
    downtimes = Downtimes()
    snapshot(*args, downtimes=downtimes, **facts)
    return downtimes.periods


def member(seen: Snapshot, name: str) -> Machine:
    """The member of the pool with this name."""
    return next(each for each in seen.members if each.metadata.name == name)


def intent_of(owner: Pool) -> Intent:
    intent = parse_intent(owner)
    assert isinstance(intent, Intent), intent
    return intent


def situation_of(seen: Snapshot) -> Situation:
    """The situation of the pool in this snapshot, with all members."""
    found = situation.situation_of(seen)
    assert isinstance(found, Situation), found
    return found


def revisions_of(seen: Snapshot) -> Revisions:
    return read_revisions(seen, intent_of(seen.owner).template)


def _readiness(of: VirtualMachine) -> Json:
    """The readiness of a VM, as keyword arguments for `vmi`."""
    condition = ready_condition(of)
    if condition is None or condition.last_transition_time is None:
        return {"ready": None, "age_s": 0}
    ready_for_s = (NOW - condition.last_transition_time).total_seconds()
    return {"ready": condition.status == "True", "ready_for_s": ready_for_s}
