"""The rows of the cost test with caches: decoded objects, changes of cached objects, snapshots, Events and edits."""

from datetime import timedelta
from typing import Any

import msgspec
from msgspec.structs import replace

from controller.apimachinery.conditions import Condition
from controller.apimachinery.label_selectors import SelectorCache
from controller.events.correlator import Correlator, ObjectRef
from controller.kinds import POOLS
from controller.kubevirt import annotations as names
from controller.kubevirt.live_updates import change_between, unapplied
from controller.kubevirt.merge_keys import VM_RULES
from controller.kubevirt.pool_types import PoolStatus
from controller.kubevirt.resources import VMIS, VMS
from controller.kubevirt.services import ServiceRequest, make_service, template_of_replicaset
from controller.pool.cleanup import plan_cleanup
from controller.pool.members.snapshot import VM_INDEXES, orphaned_revisions_of
from controller.pool.status import next_status
from controller.pool.triggers import pools_of_vm, pools_of_vmi
from controller.replicas.catalogue import without_foreign_annotations
from controller.replicas.revisions import kept_revision
from controller.replicaset.own_hashes import with_own_hashes
from controller.replicaset.rosters import VMIRosters
from controller.replicaset.snapshot import REPLICASET_INDEXES, VMI_INDEXES, GoneNames, RevisionCache
from controller.replicaset.snapshot import REVISION_INDEXES as SET_REVISION_INDEXES
from controller.replicaset.triggers import replicasets_of_vmi
from controller.runtime.status import status_patch
from informers.meta import ObjectKey
from informers.store import Added, Removed, Store, Updated
from plugin.views.edits import Edit, json_patch
from plugin.views.pools import visible_members
from plugin.views.situation import situation_from_status
from tests import builders
from tests import pool_builders as pools
from tests.builders import NOW
from tests.cost.member_rows import POOL_STATES
from tests.cost.meter import Call
from tests.cost.rows import note, row, vm


@row(20, 2_000)
def change_of_volumes(n: int) -> Call:
    names = [f"v{number}" for number in range(n)]
    old, new = ([{"name": name, "containerDisk": {"image": each}} for name in names] for each in "12")
    one, other = ({"template": {"spec": {"volumes": volumes}}} for volumes in (old, new))
    return lambda: change_between(one, other)


@row(20, 2_000, "tolerations", "nodeSelector", "affinity")
def live_fields_of_a_vmi(n: int, field: str) -> Call:
    many = {f"key-{number}": "v" for number in range(n)}
    value = [{"key": each} for each in many] if field == "tolerations" else many
    machine = vm({"template": {"spec": {field: value}}})
    instance = msgspec.json.encode({"spec": {field: value}, "status": {}})
    return lambda: unapplied(machine, instance)


@row(20, 6_000)
def interfaces_that_leave_a_vmi(n: int) -> Call:
    interfaces = [{"name": f"net-{number}", "state": "absent"} for number in range(n)]
    machine = vm({"template": {"spec": {"domain": {"devices": {"interfaces": interfaces}}}}})
    return lambda: unapplied(machine, msgspec.json.encode({"spec": {}, "status": {}}))


@row(20, 2_000)
def merge_of_unknown_fields(n: int) -> Call:
    old, new = (vm({"a": {f"f{number}": [number, each] for number in range(n)}}) for each in (1, 2))
    return lambda: VM_RULES.merge(old, old, new)


@row(20, 2_000)
def decoded_objects(n: int) -> Call:
    conditions = [{"type": f"c{number}", "status": "True"} for number in range(n)]
    volumes = [{"name": f"v{number}", "dataVolume": {"name": f"d{number}"}} for number in range(n)]
    spec = {"template": {"spec": {"volumes": volumes}}}
    status = {"conditions": conditions, "phaseTransitionTimestamps": [{"phase": each["type"]} for each in conditions]}
    document = msgspec.json.encode({"metadata": {"name": "a"}, "spec": spec, "status": status})
    return lambda: [VMS.decode(document), VMIS.decode(document)]


@row(50, 2_000)
def changes_of_cached_objects(n: int) -> Call:
    many = {f"key-{number}": "v" for number in range(n)} | {f"vmherd.dev/x-{number}": "" for number in range(n)}
    owner, set_owner = pools.pool(), builders.replicaset()
    old, new = (pools.vm(owner=owner, labels=many, annotations=many, version=version) for version in "12")
    vmis = [builders.vmi(owner=set_owner, labels=many, annotations=many, version=version) for version in "12"]
    orphan = builders.vmi("orphan", labels=many)
    vms: Store[Any] = Store()
    sets: Store[Any] = Store(indexes=REPLICASET_INDEXES)
    revision = pools.revision(owner, annotations=many)
    for number in range(n):
        sets.apply(builders.replicaset(f"set-{number}", match_labels={f"key-{number}": "v"}))

    def follow() -> None:
        for change in (Added(old), Updated(old, new)):
            list(pools_of_vm(change))
        list(pools_of_vmi(Updated(*vmis), vms))
        for each in (Updated(*vmis), Added(orphan)):
            list(replicasets_of_vmi(each, sets, SelectorCache()))
        without_foreign_annotations(new)
        kept_revision(revision)

    return follow


@row(8, 500)
def snapshots_of_a_pool(n: int) -> Call:
    owner = pools.pool(replicas=n, annotations={names.UNREADY: note(n)})
    machines = [*pools.vms(owner, *range(n), ready=False), *(pools.vm(f"web-{n + each}") for each in range(n))]
    revisions = [pools.revision(owner, f"web-{number}", number=number, owned=None) for number in range(n)]
    caches = pools.stores(owner, machines, vmis=map(pools.vmi, machines), revisions=revisions)

    def take() -> None:
        rules = pools.rules_of(caches)
        list(rules.prepare(owner.metadata.key, now=NOW))
        for machine in machines:
            rules.rosters.changed(machine, machine)
        rules.take_snapshot(owner.metadata.key, now=NOW, settled=True)
        rules.plan_absent(owner.metadata.key)
        orphaned_revisions_of(ObjectKey("default", "gone"), caches)

    return take


@row(8, 500)
def snapshots_of_a_set(n: int) -> Call:
    owner = builders.replicaset(replicas=n)
    members = [builders.vmi(f"web-{number}", owner=owner) for number in range(n)]
    store: Store[Any] = Store(indexes=VMI_INDEXES)
    revisions: Store[Any] = Store(indexes=SET_REVISION_INDEXES)
    for each in members:
        store.apply(each)
    for number in range(n):
        revisions.apply(builders.revision(builders.replicaset(spec=b'{"hostname":"%d"}' % number)))
    gone = GoneNames()

    def take() -> None:
        for each in members:
            gone.handle(Removed(each))
        for minutes in (0, 11):
            gone.taken(store, "default", NOW + timedelta(minutes=minutes))
        rosters = VMIRosters(store)
        rosters.read(owner.metadata, {})
        for each in members:
            rosters.changed(each, each)
        rosters.read(owner.metadata, {})
        RevisionCache(revisions, 5).history_of(owner.metadata, NOW)

    return take


@row(20, 2_000)
def writes_to_a_store(n: int) -> Call:
    owner = pools.pool()
    machines = pools.vms(owner, *range(n))
    changed = pools.vms(owner, *range(n), version="2")

    def write() -> None:
        store: Store[Any] = Store(indexes=VM_INDEXES)
        for each in (*machines, *changed):
            store.apply(each)
        replacement = store.begin_replace()
        for each in changed[::2]:
            replacement.put(each)
        store.commit(replacement, "3")
        list(replacement.changes(at_once=10))

    return write


@row(20, 2_000, "one object", "many objects")
def events(n: int, kind: str) -> Call:
    def record() -> None:
        correlator = Correlator(capacity=n // 2)
        for number in range(n):
            uid = "" if kind == "one object" else str(number)
            ref = ObjectRef(kind="Pool", namespace="a", name="b", uid=uid, api_version="v1")
            correlator.record(ref, component="c", reason="R", message=f"m {number}", warning=True, at=NOW)

    return record


@row(20, 2_000)
def services(n: int) -> Call:
    labels = {f"key-{number}": "v" for number in range(n)}
    ports = [{"port": number + 1} for number in range(n)]
    interfaces = [{"name": "default", "masquerade": {}, "ports": ports}]
    spec = {"domain": {"devices": {"interfaces": interfaces}}, "networks": [{"name": "default", "pod": {}}]}
    owner = builders.replicaset(template_labels=labels, match_labels=labels, spec=msgspec.json.encode(spec))
    request = ServiceRequest(name="a", namespace="b")
    return lambda: make_service(owner, template_of_replicaset, builders.reference_to(owner), request)


@row(12, 500)
def cleanup_of_many_pools(n: int) -> Call:
    owners = [pools.pool(f"web{number}", uid=f"uid-{number}") for number in range(n)]
    machines = [pools.vm(f"web{number}-0", owner=each) for number, each in enumerate(owners)]
    return lambda: plan_cleanup(owners, machines, pools.POOLS, force=False)


@row(12, 500)
def edits_of_a_document(n: int) -> Call:
    document = {"metadata": {"uid": "u", "labels": {f"key-{number}": "v" for number in range(n)}}}
    return lambda: json_patch(document, [Edit(("metadata", "labels", "key-0"), "w"), Edit(("spec", "paused"), True)])


@row(8, 300)
def what_a_status_alone_shows(n: int) -> Call:
    seen = POOL_STATES["failing"](n)
    members = [(each.vm, each.vmi) for each in seen.members]
    old = PoolStatus(conditions=tuple(Condition(type=f"c{number}", status="True") for number in range(n)))
    owner = replace(seen.owner, status=old)

    def show() -> None:
        status_patch(owner, next_status(replace(seen, owner=owner), ()))
        situation_from_status(POOLS, "", owner, visible_members(owner, members, NOW))

    return show


@row(12, 500)
def template_hashes_that_are_lost(n: int) -> Call:
    owner = builders.replicaset(spec=b'{"domain":{}}')
    stored = builders.history(builders.revision(owner), *(builders.revision(owner) for _ in range(n)))
    found, labels = (f"{owner.metadata.name}{number:05}" for number in range(n)), {names.TEMPLATE_HASH: "bogus"}
    young = [builders.vmi(each, owner=owner, labels=builders.LABELS | labels) for each in found]
    return lambda: with_own_hashes(builders.snapshot(owner, young, history=stored))
