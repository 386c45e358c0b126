"""Disks outlive their VM: an owner is taken off, and the VM goes when that is done (P10)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from controller.apimachinery.finalizers import removal_patch
from controller.kubevirt.resources import DATA_VOLUMES, PVCS, VMIS
from controller.runtime.executor import REWORKS
from controller.runtime.plan import Done, Missing, Patch, Stage
from informers.meta import OwnerReference
from informers.objects import PatchType
from tests.controller.runtime.executor_changes import (
    FINALIZER,
    OTHERS,
    OWN,
    disown,
    meddle,
    owners_of,
    put_disk,
    reference,
    when,
)
from tests.controller.runtime.executor_setup import (
    BUSY,
    IN_DOUBT,
    INVALID,
    MODIFIED,
    UNREACHABLE,
    ExecutorSetup,
    key,
    kinds,
)
from tests.fakes.requests import Fault, Request

pytestmark = pytest.mark.looptime


@pytest.mark.parametrize("place", range(len(OTHERS) + 1))
async def test_p10_one_reference_is_taken_off_and_the_others_stay_as_they_were(place: int):
    setup = ExecutorSetup()
    put_disk(setup, *OTHERS[:place], OWN, *OTHERS[place:])
    outcome = await setup.outcome_of(disown())
    assert outcome == Done(disown(), str(setup.server.version))
    assert owners_of(setup) == OTHERS


async def test_p10_a_disk_without_any_owner_left_has_an_empty_list():
    setup = ExecutorSetup()
    put_disk(setup, OWN)
    await setup.outcome_of(disown())
    assert owners_of(setup) == []


@pytest.mark.parametrize("owners", [[], OTHERS])
async def test_p10_a_disk_that_is_not_the_owners_is_left_alone(owners: list[dict[str, object]]):
    setup = ExecutorSetup()
    put_disk(setup, *owners)
    assert await setup.outcome_of(disown()) == Done(disown())
    assert setup.sent == ["get disk"]


async def test_p10_a_disk_that_is_not_there_has_vanished():
    """Nor is it on a cluster without DataVolumes: the server knows no such path."""
    assert await ExecutorSetup().outcome_of(disown()) == Missing(disown())


async def test_p10_a_disk_that_goes_while_it_is_disowned_has_vanished():
    setup = ExecutorSetup()
    put_disk(setup, OWN)
    setup.server.fault_for = when("patch", lambda: setup.server.remove(DATA_VOLUMES, key("disk")))
    assert await setup.outcome_of(disown()) == Missing(disown())


@pytest.mark.parametrize("times", range(1, REWORKS))
async def test_p10_who_is_faster_is_read_again(times: int):
    setup = ExecutorSetup()
    put_disk(setup, OWN, *OTHERS)
    setup.server.fault_for = when("patch", meddle(setup, DATA_VOLUMES, "disk"), times=times)
    assert kinds([await setup.outcome_of(disown())]) == ["Done"]
    assert owners_of(setup) == OTHERS
    assert setup.sent == ["get disk", "patch disk"] * (times + 1)


async def test_p10_an_owner_that_somebody_adds_meanwhile_stays():
    setup = ExecutorSetup()
    put_disk(setup, OWN)
    change = {"metadata": {"ownerReferences": [*OTHERS, OWN]}}
    setup.server.fault_for = when("patch", lambda: setup.server.change(DATA_VOLUMES, key("disk"), change))
    assert kinds([await setup.outcome_of(disown())]) == ["Done"]
    assert owners_of(setup) == OTHERS


async def test_p10_another_disk_of_the_name_keeps_its_owners():
    setup = ExecutorSetup()
    put_disk(setup, OWN)

    def replace() -> None:
        setup.server.remove(DATA_VOLUMES, key("disk"))
        put_disk(setup, *OTHERS)

    setup.server.fault_for = when("patch", replace)
    assert await setup.outcome_of(disown()) == Done(disown())
    assert owners_of(setup) == OTHERS


@pytest.mark.parametrize("fault", IN_DOUBT)
async def test_p10_a_disown_whose_answer_is_lost_is_unknown_and_simply_done_again(fault: Fault):
    setup = ExecutorSetup()
    put_disk(setup, OWN)
    setup.fail(fault, verb="patch")
    assert kinds([await setup.outcome_of(disown())]) == ["Unknown"]
    assert setup.unresolved == ()
    assert setup.settled, "it does no harm twice, and no cache would tell"
    setup.heal()
    assert kinds([await setup.outcome_of(disown())]) == ["Done"]
    assert owners_of(setup) == []


# What comes after it


def removal(setup: ExecutorSetup, name: str, *, owner_uid: str) -> Patch:
    """Take our finalizer off a VM, after its disks."""
    vm = setup.server.find(VMIS, key(name))
    assert vm is not None
    body = removal_patch(vm.metadata, FINALIZER)
    return Patch(resource=VMIS, key=key(name), body=body, type=PatchType.JSON, why="it leaves", after_owner=owner_uid)


def leaving(setup: ExecutorSetup, *names: str) -> tuple[Stage, Stage]:
    """VMs that are being deleted, each with a DataVolume and its claim; and what a plan does with them."""
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


async def test_p10_a_vm_is_let_go_once_its_disks_are_safe():
    setup = ExecutorSetup()
    outcomes = await setup.carry_out(*leaving(setup, "a", "b"))
    assert kinds(outcomes) == ["Done"] * 6
    assert held(setup) == []
    assert {request.verb for request in setup.server.requests[-2:]} == {"patch"}
    for resource in (DATA_VOLUMES, PVCS):
        assert [owners_of(setup, f"disk-{name}", resource) for name in "ab"] == [[], []]
    assert [list(vmi.metadata.finalizers) for vmi in setup.server.objects(VMIS)] == [["example.org/theirs"]] * 2


@pytest.mark.parametrize("fault", [INVALID, BUSY, MODIFIED, *IN_DOUBT])
@pytest.mark.parametrize("resource", [DATA_VOLUMES, PVCS])
async def test_p10_a_vm_whose_disk_resists_is_held_and_the_others_go(fault: Fault, resource: Any):
    setup = ExecutorSetup()
    stages = leaving(setup, "a", "b", "c")

    def fault_for(request: Request) -> Fault | None:
        is_meant = request.resource is resource and request.key.name == "disk-b"
        return fault if is_meant and request.verb == "patch" else None

    setup.server.fault_for = fault_for
    outcomes = await setup.carry_out(*stages)
    assert kinds(outcomes)[-3:] == ["Done", "Skipped", "Done"]
    assert held(setup) == ["b"]


async def test_p10_a_disk_that_was_not_tried_holds_its_vm_as_well():
    setup = ExecutorSetup()
    stages = leaving(setup, "a", "b")
    setup.fail(INVALID, name="first")
    first = Stage((disown("first"),))
    setup.server.put(DATA_VOLUMES, {"metadata": {"name": "first", "namespace": "default", "ownerReferences": [OWN]}})
    outcomes = await setup.carry_out(first, *stages)
    assert kinds(outcomes) == ["Rejected"] + ["Skipped"] * 6
    assert held(setup) == ["a", "b"]


async def test_p10_a_server_that_cannot_be_reached_lets_nobody_go_whose_disks_were_not_seen_to():
    setup = ExecutorSetup()
    stages = leaving(setup, *(f"vm-{number:02}" for number in range(40)))
    setup.fail(UNREACHABLE, verb="get")
    outcomes = await setup.carry_out(*stages)
    assert set(kinds(outcomes)[-40:]) == {"Skipped"}
    assert len(held(setup)) == 40


async def test_p10_disks_that_are_gone_hold_nobody():
    setup = ExecutorSetup()
    stages = leaving(setup, "a")
    for resource in (DATA_VOLUMES, PVCS):
        setup.server.remove(resource, key("disk-a"))
    assert kinds(await setup.carry_out(*stages)) == ["Missing", "Missing", "Done"]
    assert held(setup) == []


async def test_p10_whose_disk_resists_holds_no_patch_that_does_not_ask():
    setup = ExecutorSetup()
    uid = setup.add("a", finalizers=[FINALIZER])
    put_disk(setup, reference(uid))
    setup.fail(INVALID, name="disk")
    stages = (Stage((disown(owner_uid=uid),), essential=False), Stage((removal(setup, "a", owner_uid=""),)))
    assert kinds(await setup.carry_out(*stages)) == ["Rejected", "Done"]


async def test_p6_a_finalizer_is_not_taken_off_by_its_place_alone():
    setup = ExecutorSetup()
    setup.add("a", finalizers=["example.org/one", FINALIZER, "example.org/two"])
    patch = removal(setup, "a", owner_uid="")
    setup.server.change(VMIS, key("a"), {"metadata": {"finalizers": [FINALIZER, "example.org/two"]}})
    assert kinds([await setup.outcome_of(patch)]) == ["Rejected"]
    assert setup.server.objects(VMIS)[0].metadata.finalizers == (FINALIZER, "example.org/two")


def test_the_reference_of_a_disk_is_whole():
    """What is written back for the others is all that the API knows of a reference."""
    assert set(OWN) == set(msgspec.to_builtins(msgspec.convert(OWN, OwnerReference)))
