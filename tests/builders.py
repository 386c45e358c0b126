"""Builds objects for tests. The objects are complete, and a test sets single fields by keyword."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from controller import kinds
from controller.apimachinery.conditions import Condition
from controller.apimachinery.label_selectors import LabelSelector, SelectorRequirement
from controller.kubevirt import vmi_types
from controller.kubevirt.annotations import TEMPLATE_HASH
from controller.kubevirt.replicaset_types import ReplicaSet, ReplicaSetSpec, ReplicaSetStatus
from controller.kubevirt.vm_types import ControllerRevision
from controller.replicas.revisions import create_revision, kept_revision, set_revision_name
from controller.replicaset.intent import Intent, Rollout, parse_intent
from controller.replicaset.snapshot import REVISION_INDEXES, History, RevisionCache, Snapshot
from controller.replicaset.traits import group_vmis
from informers.meta import ObjectMeta, OwnerReference, controller_of
from informers.store import Store

NOW = datetime(2026, 8, 1, 12, tzinfo=UTC)
REPLICASETS = kinds.REPLICA_SETS.resource()
LABELS: Mapping[str, str] = {"myvmi": "myvmi"}
OF_TEMPLATE: Mapping[str, str] = {}
"""Stands for the labels that a VMI of the set has."""

SPEC = b'{"domain":{"devices":{}}}'


OWNER_REFERENCE = {
    "apiVersion": "kubevirt.io/v1",
    "kind": "VirtualMachineInstanceReplicaSet",
    "name": "testreplicaset",
    "uid": "uid-of-the-set",
    "controller": True,
    "blockOwnerDeletion": True,
}
"""The owner reference of a VMI that `replicaset()` owns, as JSON."""


ANOTHER_CONTROLLER = OwnerReference(
    api_version="apps/v1", kind="Other", name="other", uid="uid-of-a-stranger", controller=True
)


def seconds_ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def reference_to(owner: ReplicaSet, *, controller: bool = True) -> OwnerReference:
    return OwnerReference(
        api_version="kubevirt.io/v1",
        kind="VirtualMachineInstanceReplicaSet",
        name=owner.metadata.name,
        uid=owner.metadata.uid,
        controller=controller,
        block_owner_deletion=True,
    )


def vmi(
    name: str = "test-vmi",
    *,
    owner: ReplicaSet | None = None,
    owners: Iterable[OwnerReference] = (),
    namespace: str = "default",
    uid: str | None = None,
    version: str = "1",
    labels: Mapping[str, str] | None = OF_TEMPLATE,
    annotations: Mapping[str, str] | None = None,
    age_s: float = 3600,
    deleting: bool = False,
    phase: str | None = "Running",
    node: str | None = "node-1",
    ready: bool | None = True,
    reason: str | None = "GuestNotRunning",
    ready_for_s: float = 1800,
    migrating: bool = False,
    entered_s: Mapping[str, float] | None = None,
    status_reason: str | None = None,
    conditions: Iterable[Condition] = (),
) -> vmi_types.VirtualMachineInstance:
    """A VMI that has run for a while. `owner` is its controller. With `ready=None`, it has no condition Ready.
    `reason` is that of a VMI that is not ready: None if its node does not answer. `conditions` are its conditions other
    than Ready.

    Without `labels`, the VMI of a valid set has the label with the hash of the set's template.
    `entered_s` maps each phase to the seconds since the VMI entered the phase.
    """
    transitions = [vmi_types.PhaseTransition(name, seconds_ago(ago)) for name, ago in (entered_s or {}).items()]
    condition = Condition(
        type="Ready",
        status="True" if ready else "False",
        reason=None if ready else reason,
        last_transition_time=seconds_ago(ready_for_s),
    )
    return vmi_types.VirtualMachineInstance(
        metadata=ObjectMeta(
            name=name,
            namespace=namespace,
            uid=f"uid-{name}" if uid is None else uid,
            resource_version=version,
            creation_timestamp=seconds_ago(age_s),
            deletion_timestamp=seconds_ago(1) if deleting else None,
            labels=_labels_from(owner) if labels is OF_TEMPLATE else labels,
            annotations=annotations,
            owner_references=(*owners, *((reference_to(owner),) if owner is not None else ())),
        ),
        status=vmi_types.VMIStatus(
            phase=phase,
            node_name=node,
            conditions=(*(() if ready is None else (condition,)), *conditions) or None,
            migration_state=vmi_types.MigrationState() if migrating else None,
            phase_transition_timestamps=None if entered_s is None else tuple(transitions),
            reason=status_reason,
        ),
    )


def members(owner: ReplicaSet, number: int, **changes: Any) -> list[vmi_types.VirtualMachineInstance]:
    return [vmi(f"vm-{each}", owner=owner, **changes) for each in range(number)]


def _labels_from(owner: ReplicaSet | None) -> Mapping[str, str]:
    intent = parse_intent(owner) if owner is not None else None
    return {**LABELS, TEMPLATE_HASH: intent.template.hash} if isinstance(intent, Intent) else LABELS


def replicaset(
    name: str = "testreplicaset",
    *,
    namespace: str = "default",
    uid: str = "uid-of-the-set",
    generation: int = 1,
    annotations: Mapping[str, str] | None = None,
    deleting: bool = False,
    replicas: int | None = 3,
    paused: bool | None = None,
    match_labels: Mapping[str, str] | None = LABELS,
    match_expressions: tuple[SelectorRequirement, ...] | None = None,
    template: vmi_types.VMITemplate | str | None = "",
    template_name: str | None = "test",
    generate_name: str | None = None,
    template_labels: Mapping[str, str] | None = LABELS,
    template_annotations: Mapping[str, str] | None = None,
    template_finalizers: tuple[str, ...] | None = None,
    spec: bytes = SPEC,
    status: ReplicaSetStatus | None = None,
) -> ReplicaSet:
    """A valid replica set of three VMIs.

    If `template` is given, `spec` and the keywords `template_...` have no effect.
    """
    meta = vmi_types.TemplateMeta(
        name=template_name,
        generate_name=generate_name,
        labels=template_labels,
        annotations=template_annotations,
        finalizers=template_finalizers,
    )
    return ReplicaSet(
        metadata=ObjectMeta(
            name=name,
            namespace=namespace,
            uid=uid,
            resource_version="1",
            generation=generation,
            creation_timestamp=seconds_ago(7200),
            deletion_timestamp=seconds_ago(1) if deleting else None,
            annotations=annotations,
        ),
        spec=ReplicaSetSpec(
            replicas=replicas,
            selector=LabelSelector(match_labels, match_expressions),
            template=vmi_types.VMITemplate(meta, Raw(spec)) if isinstance(template, str) else template,
            paused=paused,
        ),
        status=status,
    )


def snapshot(
    owner: ReplicaSet,
    vmis: Iterable[vmi_types.VirtualMachineInstance] = (),
    *,
    taken: Iterable[str] = (),
    now: datetime = NOW,
    settled: bool = True,
    burst: int = 250,
    history: History | None = None,
) -> Snapshot:
    """The snapshot of a set whose namespace has only these VMIs. By default, its template is stored."""
    vmis = tuple(vmis)
    controllers = [controller_of(vmi.metadata) for vmi in vmis]
    pairs = list(zip(vmis, controllers, strict=True))
    return Snapshot(
        owner=owner,
        members=group_vmis(vmi for vmi, by in pairs if by is not None and by.uid == owner.metadata.uid),
        orphans=tuple(vmi for vmi, by in pairs if by is None),
        taken=frozenset(taken) | {vmi.metadata.name for vmi in vmis},
        now=now,
        settled=settled,
        burst=burst,
        replicasets=REPLICASETS,
        history=_history(history, owner),
    )


def limits_of(owner: ReplicaSet, wanted: int) -> Rollout | None:
    """The limits of the rolling update of a set that wants this number of VMIs."""
    intent = parse_intent(owner)
    assert isinstance(intent, Intent)
    return intent.limits_at(wanted)


def revision(owner: ReplicaSet, *, deleting: bool = False, owned: bool = True) -> ControllerRevision:
    """The revision of the set's template, with its data. If `owned` is false, no owner controls the revision."""
    intent = parse_intent(owner)
    assert isinstance(intent, Intent)
    hashed = intent.template.hash
    name = set_revision_name(owner.metadata.name, hashed)
    create = create_revision(
        owner, REPLICASETS, name, {"template": owner.spec.template}, labels={TEMPLATE_HASH: hashed}
    )
    made = msgspec.json.decode(create.body, type=ControllerRevision)
    meta = replace(
        made.metadata,
        uid=f"uid-{name}",
        resource_version="1",
        creation_timestamp=seconds_ago(3600),
        deletion_timestamp=seconds_ago(1) if deleting else None,
        owner_references=made.metadata.owner_references if owned else None,
    )
    return replace(made, metadata=meta)


def no_revisions() -> RevisionCache:
    return RevisionCache(Store(indexes=REVISION_INDEXES), 5)


def _history(given: History | None, owner: ReplicaSet) -> History:
    return history(*stored(owner)) if given is None else given


def stored(owner: ReplicaSet) -> list[ControllerRevision]:
    """The revision of the set's template, if the set is valid."""
    return [revision(owner)] if isinstance(parse_intent(owner), Intent) else []


def history(
    *revisions: ControllerRevision,
    orphaned: Iterable[ControllerRevision] = (),
    names: Iterable[str] = (),
    keep: int = 5,
    since_s: float = 3600,
) -> History:
    """The history of a set, as the cache shows it. The controller has started `since_s` seconds ago."""
    cached = [kept for each in revisions if (kept := kept_revision(each)) is not None]
    left = tuple(orphaned)
    return History(
        revisions=tuple(cached),
        orphaned=left,
        names={*names, *(each.metadata.name for each in (*cached, *left))},
        keep=keep,
        since=seconds_ago(since_s),
    )
