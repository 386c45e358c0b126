"""Patches that the executor computes from a fresh read, for example three-way merges. After a conflict, the executor
reads and patches again (P12).
"""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from controller.apimachinery.finalizers import removal_patch
from controller.kubevirt.annotations import KEPT_FOR
from controller.kubevirt.merge_keys import VM_RULES
from controller.kubevirt.resources import DATA_VOLUMES, PVCS, VMIS
from controller.runtime.actions import Done, Missing, Patch, RemoveOwnerReference, Stage, ThreeWayMerge
from controller.runtime.execute import patches
from controller.runtime.execute.patches import ATTEMPTS
from controller.runtime.execute.refusals import FIRST_WAIT_S
from informers.errors import Conflict
from informers.meta import labels_of
from informers.objects import PatchType
from tests.controller.runtime.executor_setup import (
    FINALIZER,
    OTHERS,
    OWN,
    OWNER_UID,
    ExecutorSetup,
    disown,
    key,
    kinds,
    meddle,
    owners_of,
    put_disk,
    put_vm,
    reference,
    spec_of,
    three_way_merge,
    when,
)
from tests.controller.runtime.refusals import BUSY, IN_DOUBT, INVALID, MODIFIED, UNREACHABLE
from tests.fakes.requests import Fault, Garbled, Lost, Request

pytestmark = pytest.mark.looptime

Make = Callable[[], RemoveOwnerReference | ThreeWayMerge]
each_change = pytest.mark.parametrize(
    "make", [disown, lambda: three_way_merge("uid-101")], ids=["owner reference", "merge"]
)


@each_change
async def test_a_change_is_given_up_after_four_conflicts(setup, make: Make):
    put_vm(setup)
    put_disk(setup, OWN)
    action = make()
    setup.server.fault_for = when("patch", meddle(setup, action.resource, action.key.name), times=99)
    outcome = await setup.rejected(action)
    assert isinstance(outcome.error, Conflict)
    assert len(setup.sent) == 2 * ATTEMPTS == 8
    assert setup.settled


@each_change
@pytest.mark.parametrize("fault", [BUSY, UNREACHABLE, *IN_DOUBT])
async def test_a_change_is_rejected_if_the_read_fails_because_nothing_was_written(setup, make: Make, fault: Fault):
    put_vm(setup)
    put_disk(setup, OWN)
    setup.fail(fault, verb="get")
    assert kinds([await setup.outcome_of(make())]) == ["Rejected"]
    assert setup.settled


# Template changes


async def test_p12_only_the_differences_between_the_templates_are_written(setup):
    uid = put_vm(setup, labels={"theirs": "1"})
    assert await setup.outcome_of(three_way_merge(uid)) == Done(three_way_merge(uid), str(setup.server.version))
    assert spec_of(setup) == {"template": 2, "own": "x"}
    assert setup.server.objects(VMIS)[0].metadata.labels == {"theirs": "1"}
    assert not setup.settled
    setup.cache.catch_up()
    assert setup.settled


@pytest.mark.parametrize(("says", "result", "after"), [(1, "Done", 2), (2, "Done", 2), (3, "Rejected", 3)])
async def test_p21_an_exact_change_leaves_the_value_of_a_user(setup, says: int, result: str, after: int):
    """A change that was made already is done."""
    uid = put_vm(setup, says=says)
    assert kinds([await setup.outcome_of(replace(three_way_merge(uid), is_exact=True))]) == [result]
    assert spec_of(setup)["template"] == after


@pytest.mark.parametrize("moment", ["get", "patch"])
@pytest.mark.parametrize("change", ["deleted", "being deleted", "replaced"])
async def test_p12_a_vm_that_is_gone_or_being_deleted_is_missing_and_another_of_its_name_is_not_changed(
    setup, change: str, moment: str
):
    uid = put_vm(setup, finalizers=["example.org/theirs"] if change == "being deleted" else [])

    def happen() -> None:
        setup.server.remove(VMIS, key("vm"))
        if change == "replaced":
            put_vm(setup)

    setup.server.fault_for = when(moment, happen)
    assert await setup.outcome_of(three_way_merge(uid)) == Missing(three_way_merge(uid))
    assert setup.settled
    assert change == "deleted" or spec_of(setup) == {"template": 1, "own": "x"}


@pytest.mark.parametrize(
    "owners", [None, [reference("other", controller=True)]], ids=["no controller", "another controller"]
)
async def test_p12_a_vm_that_a_user_detached_since_the_plan_is_not_changed(
    setup, owners: list[dict[str, object]] | None
):
    action = replace(three_way_merge(put_vm(setup)), owner_uid=OWNER_UID)
    setup.server.change(VMIS, key("vm"), {"metadata": {"ownerReferences": owners}})
    assert await setup.outcome_of(action) == Missing(action)
    assert spec_of(setup) == {"template": 1, "own": "x"}


async def test_p12_a_merge_that_fails_unexpectedly_does_not_stop_the_other_vms(setup, monkeypatch: pytest.MonkeyPatch):
    actions = [three_way_merge(put_vm(setup, f"vm-{number}"), f"vm-{number}") for number in range(5)]
    actions[3] = replace(actions[3], new=b'{"too": "large"}')

    def overflow(current: bytes, old: bytes, new: bytes) -> bytes | None:
        if new == actions[3].new:
            raise MemoryError
        return VM_RULES.merge(current, old, new)

    monkeypatch.setattr(patches, "VM_RULES", SimpleNamespace(merge=overflow))
    outcomes = await setup.carry_out(actions)
    assert kinds(outcomes) == ["Done"] * 3 + ["Rejected", "Done"]
    assert outcomes[3].message == "default/vm-3 cannot be read: MemoryError"


@pytest.mark.parametrize("fault", IN_DOUBT)
async def test_p12_a_merge_whose_answer_is_lost_is_unresolved_until_the_server_is_asked(setup, fault: Fault):
    uid = put_vm(setup)
    setup.fail(fault, verb="patch")
    assert kinds([await setup.outcome_of(three_way_merge(uid))]) == ["Unknown"]
    assert setup.unresolved == (three_way_merge(uid),)
    setup.heal()
    setup.cache.catch_up()
    assert not setup.settled, "the cache cannot tell whose change it shows"
    assert await setup.resolve() is None
    assert setup.settled
    happened = spec_of(setup) == {"template": 2, "own": "x"}
    assert happened is (fault is Lost.AFTER or isinstance(fault, Garbled))


@pytest.mark.parametrize("place", range(len(OTHERS) + 1))
async def test_p10_one_reference_is_removed_and_the_others_are_unchanged(setup, place: int):
    put_disk(setup, *OTHERS[:place], OWN, *OTHERS[place:])
    outcome = await setup.outcome_of(disown())
    assert outcome == Done(disown(), str(setup.server.version))
    assert owners_of(setup) == OTHERS


async def test_p10_a_kept_disk_has_the_name_of_its_pool(setup):
    put_disk(setup, OWN)
    await setup.outcome_of(replace(disown(), kept_for="web"))
    kept = setup.server.find(DATA_VOLUMES, key("disk"))
    assert kept is not None
    assert labels_of(kept.metadata) == {KEPT_FOR: "web"}


@pytest.mark.parametrize("owners", [[], OTHERS])
async def test_p10_a_disk_of_another_owner_is_not_changed(setup, owners: list[dict[str, object]]):
    put_disk(setup, *owners)
    assert await setup.outcome_of(disown()) == Done(disown())
    assert setup.sent == ["get disk"]


async def test_p10_a_disk_that_does_not_exist_is_missing():
    """The API server answers 404 for a missing disk. If the cluster has no kind DataVolume, the answer is 404 too."""
    assert await ExecutorSetup().outcome_of(disown()) == Missing(disown())


@pytest.mark.parametrize("times", range(1, ATTEMPTS))
async def test_p10_after_a_conflict_the_disk_is_read_again(setup, times: int):
    put_disk(setup, OWN, *OTHERS)
    setup.server.fault_for = when("patch", meddle(setup, DATA_VOLUMES, "disk"), times=times)
    assert kinds([await setup.outcome_of(disown())]) == ["Done"]
    assert owners_of(setup) == OTHERS
    assert setup.sent == ["get disk", "patch disk"] * (times + 1)


async def test_p10_another_disk_of_the_same_name_keeps_its_owners(setup):
    put_disk(setup, OWN)

    def replace() -> None:
        setup.server.remove(DATA_VOLUMES, key("disk"))
        put_disk(setup, *OTHERS)

    setup.server.fault_for = when("patch", replace)
    assert await setup.outcome_of(disown()) == Done(disown())
    assert owners_of(setup) == OTHERS


@pytest.mark.parametrize("fault", IN_DOUBT)
async def test_p10_a_removal_whose_answer_is_lost_is_unknown_and_can_be_repeated(setup, fault: Fault):
    put_disk(setup, OWN)
    setup.fail(fault, verb="patch")
    assert kinds([await setup.outcome_of(disown())]) == ["Unknown"]
    assert setup.unresolved == ()
    assert setup.settled, "it does no harm twice, and no cache would tell"
    setup.heal()
    await asyncio.sleep(FIRST_WAIT_S)
    assert kinds([await setup.outcome_of(disown())]) == ["Done"]
    assert owners_of(setup) == []


# Patches after a removal


def removal(setup: ExecutorSetup, name: str, *, owner_uid: str) -> Patch:
    """A patch that removes the pool finalizer from a VM after the VM's disks were released."""
    vm = setup.server.find(VMIS, key(name))
    assert vm is not None
    body = removal_patch(vm.metadata, FINALIZER)
    return Patch(resource=VMIS, key=key(name), body=body, type=PatchType.JSON, why="it leaves", after_owner=owner_uid)


def leaving(setup: ExecutorSetup, *names: str) -> tuple[Stage, Stage]:
    """Terminating VMs, each with a DataVolume and a PersistentVolumeClaim, and the plan for these VMs."""
    disowns, removals = [], []
    for name in names:
        uid = setup.add(name, finalizers=["example.org/theirs", FINALIZER])
        setup.server.remove(VMIS, key(name))
        for resource in (DATA_VOLUMES, PVCS):
            put_disk(setup, reference(uid, controller=True), name=f"disk-{name}", resource=resource)
            disowns.append(disown(f"disk-{name}", uid, resource))
        removals.append(removal(setup, name, owner_uid=uid))
    return Stage(tuple(disowns), essential=False), Stage(tuple(removals), essential=False)


def held(setup: ExecutorSetup) -> list[str]:
    return [vmi.metadata.name for vmi in setup.server.objects(VMIS) if FINALIZER in vmi.metadata.finalizers]


@pytest.mark.parametrize("fault", [INVALID, BUSY, MODIFIED, *IN_DOUBT])
@pytest.mark.parametrize("resource", [DATA_VOLUMES, PVCS])
async def test_p10_a_vm_whose_disk_cannot_be_released_keeps_its_finalizer_and_the_others_do_not(
    setup, fault: Fault, resource: Any
):
    stages = leaving(setup, "a", "b", "c")

    def fault_for(request: Request) -> Fault | None:
        is_meant = request.resource is resource and request.key.name == "disk-b"
        return fault if is_meant and request.verb == "patch" else None

    setup.server.fault_for = fault_for
    outcomes = await setup.carry_out(*stages)
    assert kinds(outcomes)[-3:] == ["Done", "Skipped", "Done"]
    assert held(setup) == ["b"]


async def test_p10_a_disk_that_cannot_be_released_blocks_no_patch_without_after_owner(setup):
    uid = setup.add("a", finalizers=[FINALIZER])
    put_disk(setup, reference(uid))
    setup.fail(INVALID, name="disk")
    stages = (Stage((disown(owner_uid=uid),), essential=False), Stage((removal(setup, "a", owner_uid=""),)))
    assert kinds(await setup.carry_out(*stages)) == ["Rejected", "Done"]


async def test_p6_a_finalizer_is_not_removed_by_its_index_alone(setup):
    setup.add("a", finalizers=["example.org/one", FINALIZER, "example.org/two"])
    patch = removal(setup, "a", owner_uid="")
    setup.server.change(VMIS, key("a"), {"metadata": {"finalizers": [FINALIZER, "example.org/two"]}})
    assert kinds([await setup.outcome_of(patch)]) == ["Rejected"]
    assert setup.server.objects(VMIS)[0].metadata.finalizers == (FINALIZER, "example.org/two")
