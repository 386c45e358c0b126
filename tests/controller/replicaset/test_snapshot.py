from datetime import timedelta

from controller.apimachinery.indexes import NAMESPACE
from controller.kubevirt.annotations import DRAINED
from controller.kubevirt.replicaset_types import ReplicaSet
from controller.kubevirt.resources import VMIS
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.replicaset.rosters import VMIRosters
from controller.replicaset.rules import ReplicaSetRules
from controller.replicaset.snapshot import REPLICASET_INDEXES, VMI_INDEXES, Snapshot
from informers.meta import ObjectKey, OwnerReference
from informers.store import Store
from tests.builders import NOW, REPLICASETS, no_revisions, replicaset, vmi
from tests.fakes import stores


def test_r5_the_name_of_a_vmi_that_went_is_free_after_ten_minutes() -> None:
    owner = replicaset(replicas=1)
    sets, vmis = Store(indexes=REPLICASET_INDEXES), Store(indexes=VMI_INDEXES)
    sets.apply(owner)
    rules = ReplicaSetRules(sets, vmis, REPLICASETS, VMIRosters(vmis), no_revisions(), burst=250)

    def name_after(minutes: float) -> str:
        seen = rules.take_snapshot(owner.metadata.key, now=NOW + timedelta(minutes=minutes), settled=True)
        assert seen is not None
        [create] = [each for each in rules.plan(seen).actions if each.resource is VMIS]
        return create.key.name

    first = name_after(0)
    made = vmi(first, owner=owner)
    vmis.apply(made)
    for change in vmis.remove(made.metadata):
        rules.gone.handle(change)
    assert first not in {name_after(1), name_after(10)}
    assert name_after(11) == first


def taken_from(*objects: ReplicaSet | VirtualMachineInstance) -> Snapshot | None:
    replicasets: Store[ReplicaSet] = Store(indexes=REPLICASET_INDEXES)
    vmis: Store[VirtualMachineInstance] = Store(indexes=VMI_INDEXES)
    stores.replace(replicasets, [obj for obj in objects if isinstance(obj, ReplicaSet)], "7")
    stores.replace(vmis, [obj for obj in objects if isinstance(obj, VirtualMachineInstance)], "7")
    rules = ReplicaSetRules(replicasets, vmis, REPLICASETS, VMIRosters(vmis), no_revisions(), burst=250)
    seen = rules.take_snapshot(ObjectKey("default", "testreplicaset"), now=NOW, settled=True)
    vmis.apply(vmi("later", owner=replicaset(), version="9"))  # A snapshot does not change with the cache.
    return seen


def names(vmis) -> set[str]:
    return {vmi.metadata.name for vmi in vmis}


def test_a_set_that_is_not_in_the_cache_has_no_snapshot():
    assert taken_from(replicaset("another")) is None


def test_r2_members_are_vmis_whose_controller_has_the_uid_of_the_set():
    owner, namesake = replicaset(), replicaset(uid="an-older-set-of-that-name")
    seen = taken_from(owner, vmi("ours", owner=owner), vmi("theirs", owner=namesake), vmi("orphan"))
    assert names(seen.members) == {"ours"}


def test_r2_orphans_are_vmis_without_a_controller_that_the_set_may_adopt_or_has_created():
    owner, other = replicaset(), replicaset("other", uid="other")
    strange = {"labels": {"app": "strange"}}
    noted = vmi("testreplicasetabcde", annotations={DRAINED: "1"}, **strange)
    members = vmi("ours", owner=owner), vmi("theirs", owner=other)
    seen = taken_from(owner, other, vmi("orphan"), noted, vmi("strange", **strange), *members)
    assert names(seen.orphans) == {"orphan", "testreplicasetabcde"}
    assert taken_from(owner, vmi("orphan", namespace="elsewhere")).orphans == ()


def test_r5_names_in_use_include_all_vmis_of_the_namespace():
    owner, other = replicaset(), replicaset("other", uid="other")
    seen = taken_from(owner, vmi("theirs", owner=other), vmi("elsewhere", namespace="elsewhere"))
    assert "theirs" in seen.taken
    assert "elsewhere" not in seen.taken
    assert 5 not in seen.taken


def test_only_the_index_of_namespaces_contains_the_vmi_of_a_vm():
    owner = OwnerReference(
        api_version="kubevirt.io/v1", kind="VirtualMachine", name="vm", uid="uid-vm", controller=True
    )
    of_vm = vmi("vm", owners=(owner,))
    found = {name: list(function(of_vm)) for name, function in VMI_INDEXES.items()}
    assert {name: values for name, values in found.items() if values} == {NAMESPACE: ["default"]}
