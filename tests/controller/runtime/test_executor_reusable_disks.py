"""A disk is used, and grows, only if it belongs to the VM, or has no owner and the pool says so (P3, P10, P21)."""

from collections import Counter
from collections.abc import Awaitable
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from controller.kubevirt.annotations import ADOPT_DISKS, KEPT_FOR, USED_FOR
from controller.kubevirt.resources import DATA_VOLUMES, PVCS, VMS
from controller.runtime.actions import AlreadyThere, Create, Done, ExpandClaim, Outcome, Postponed, Rejected, Unknown
from controller.runtime.execute.disk_check import FEW, LISTED_FOR_EACH
from controller.runtime.result import LONGEST_POSTPONED_S, POSTPONED_S, postponed_s
from informers.meta import ObjectKey, labels_of
from informers.resource import Resource
from tests.controller.runtime.executor_setup import (
    OWNER_UID,
    ExecutorSetup,
    document,
    key,
    put_disk,
    put_vm,
    reference,
    three_way_merge,
)
from tests.controller.runtime.refusals import GONE
from tests.fakes.requests import Fault, Garbled, Lost, Request, refusal

pytestmark = pytest.mark.looptime

FORBIDDEN = refusal(403, "Forbidden", "no permission to list disks")
OLD_VM = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "vm-0", "uid": "old", "controller": True}


def both(disk: str) -> tuple[tuple[Resource[Any], ObjectKey], ...]:
    return (DATA_VOLUMES, key(disk)), (PVCS, key(disk))


def create(name: str = "vm-0", *disks: str) -> Create:
    reusable_disks = tuple(each for disk in disks for each in both(disk))
    body = msgspec.json.encode(document(name))
    return Create(
        resource=VMS, key=key(name), body=body, owner_uid=OWNER_UID, why="missing", reusable_disks=reusable_disks
    )


async def test_p3_a_create_waits_while_an_earlier_vm_of_the_same_name_owns_a_disk(setup):
    put_disk(setup, OLD_VM)
    action = create("vm-0", "gone", "disk")
    outcome = await setup.outcome_of(action)
    assert isinstance(outcome, Postponed)
    assert (
        outcome.message
        == "default/vm-0 waits: the disk disk still belongs to an earlier vm-0, and will be deleted with it"
    )
    assert setup.server.find(VMS, key("vm-0")) is None
    setup.server.remove(DATA_VOLUMES, key("disk"))
    assert isinstance(await setup.outcome_of(action), Done)


@pytest.mark.parametrize("owners", [(), ({**OLD_VM, "kind": "Other"},)], ids=["preserved", "owner of another kind"])
async def test_p3_p10_a_create_does_not_wait_for_a_disk_that_no_vm_owns(setup, owners):
    put_disk(setup, *owners)
    assert isinstance(await setup.outcome_of(create("vm-0", "disk")), Done)


async def test_p21_a_disk_of_another_vm_is_never_reused(setup):
    put_disk(setup, {**OLD_VM, "name": "other-3"})
    outcome = await setup.outcome_of(create("vm-0", "disk"))
    assert isinstance(outcome, Postponed)
    assert outcome.reason.startswith("the disk disk belongs to other-3")


WITHOUT_OWNER = {
    "made by a user, and the pool keeps no disks": (None, (), "has no owner"),
    "kept, and the pool keeps no disks any more": ("web", (), "was kept for the pool web"),
    "kept for another pool": ("api", ("", "web"), "was kept for the pool api"),
    "kept by KubeVirt": (None, ("", "web"), ""),
    "kept for this pool": ("web", ("", "web"), ""),
    "the pool uses each disk": ("api", None, ""),
}


def put_kept(setup: ExecutorSetup, label: str | None, resource: Resource[Any]) -> None:
    """Make a disk without an owner, with this label."""
    put_disk(setup, resource=resource)
    setup.server.change(resource, key("disk"), {"metadata": {"labels": {KEPT_FOR: label}}})


@pytest.mark.parametrize(("label", "usable", "why"), WITHOUT_OWNER.values(), ids=WITHOUT_OWNER)
@pytest.mark.parametrize("resource", [DATA_VOLUMES, PVCS], ids=["DataVolume", "claim"])
async def test_p21_a_disk_without_an_owner_is_used_only_if_the_pool_says_so(setup, label, usable, why, resource):
    put_kept(setup, label, resource)
    outcome = await setup.outcome_of(replace(create("vm-0", "disk"), usable=usable))
    disk = setup.server.find(resource, key("disk"))
    if not why:
        assert isinstance(outcome, Done)
        assert KEPT_FOR not in labels_of(disk.metadata), "users delete kept disks by the label"
        other = await setup.outcome_of(replace(create("vm-1", "disk"), usable=("", "another")))
        assert isinstance(other, Postponed if label else Done), "no VM owns the disk yet"
        return
    assert labels_of(disk.metadata).get(KEPT_FOR) == label
    assert isinstance(outcome, Postponed)
    remedy = f"delete it, or annotate the pool with {ADOPT_DISKS}=true to use it"
    assert outcome.reason == f"the disk disk {why}: {remedy}"


@pytest.mark.parametrize("knows", [True, False], ids=["the lost create is known", "a new leader"])
async def test_p10_a_disk_whose_vm_was_made_without_an_answer_has_no_label_of_kept_disks_any_more(setup, knows):
    put_kept(setup, "web", PVCS)
    action = replace(create("vm-0", "disk"), usable=("", "web"))
    setup.fail(Lost.AFTER, verb="create")
    assert isinstance(await setup.outcome_of(action), Unknown)
    setup.heal()
    if knows:
        assert await setup.resolve() is None
    else:
        assert isinstance(await setup.outcome_of(action), AlreadyThere)
    assert labels_of(setup.server.find(PVCS, key("disk")).metadata) == {USED_FOR: "web"}


@pytest.mark.parametrize(
    ("owner", "is_taken"), [("", True), ("other", True), ("own", False)], ids=["no owner", "another VM", "the VM"]
)
async def test_p21_a_change_gives_a_vm_no_disk_of_others(setup, owner: str, is_taken: bool):
    uid = put_vm(setup)
    owners = {"other": [reference("other")], "own": [reference(uid)], "": []}[owner]
    put_disk(setup, *({**each, "kind": "VirtualMachineInstance"} for each in owners))
    outcome = await setup.outcome_of(replace(three_way_merge(uid), reusable_disks=both("disk"), usable=()))
    assert isinstance(outcome, Rejected if is_taken else Done)


def expand(setup: ExecutorSetup, *, usable: tuple[str, ...] | None = ("web",)) -> Awaitable[Outcome]:
    return setup.outcome_of(
        ExpandClaim(
            resource=PVCS,
            key=key("disk"),
            size="2Gi",
            old_size="1Gi",
            owner=key("vm-0"),
            owner_uid="own",
            source=DATA_VOLUMES,
            why="it grows",
            usable=usable,
        )
    )


@pytest.mark.parametrize("has_data_volume", [True, False], ids=["DataVolume", "claim"])
@pytest.mark.parametrize(("owner", "grows"), [("own", True), ("other", False)])
async def test_p21_a_claim_of_another_vm_does_not_grow(setup, owner: str, grows: bool, has_data_volume: bool):
    if has_data_volume:
        uid = put_disk(setup, reference(owner))
        put_disk(setup, {**reference(uid), "kind": "DataVolume"}, resource=PVCS)
    else:
        put_disk(setup, reference(owner), resource=PVCS)
    outcome = await expand(setup, usable=None)
    assert isinstance(outcome, Done if grows else Rejected)


@pytest.mark.parametrize(
    ("label", "usable", "grows"),
    [("web", ("web",), True), ("api", ("web",), False), (None, ("web",), False), (None, None, True)],
    ids=["kept", "kept for another pool", "made by a user", "the pool uses each disk"],
)
async def test_p21_a_claim_without_an_owner_grows_if_it_was_kept_for_the_pool(setup, label, usable, grows):
    put_kept(setup, label, PVCS)
    outcome = await expand(setup, usable=usable)
    assert isinstance(outcome, Done if grows else Rejected)


def burst(number: int) -> list[Create]:
    return [create(f"vm-{index}", f"disk-{index}") for index in range(number)]


def reads(setup: ExecutorSetup) -> Counter[tuple[str, str]]:
    """The number of reads of disks, by verb and resource."""
    found = [(request.verb, request.resource.plural) for request in setup.server.requests]
    return Counter(each for each in found if each[1] in ("datavolumes", "persistentvolumeclaims"))


ONE_BY_ONE: Counter[tuple[str, str]] = Counter({("get", "datavolumes"): 1, ("get", "persistentvolumeclaims"): 1})
ONE_LIST: Counter[tuple[str, str]] = Counter({("list", "datavolumes"): 1, ("list", "persistentvolumeclaims"): 1})


async def test_p3_a_burst_asks_for_its_disks_with_one_list_of_each_kind(setup):
    outcomes = await setup.carry_out(burst(100))
    assert {type(outcome) for outcome in outcomes} == {Done}
    assert reads(setup) == ONE_BY_ONE + ONE_LIST
    assert len(setup.server.requests) == 104


async def test_p3_in_a_burst_only_creates_whose_disks_belong_to_an_earlier_vm_wait(setup):
    put_disk(setup, {**OLD_VM, "name": "vm-7"}, name="disk-7")
    put_disk(setup, {**OLD_VM, "name": "vm-8"}, name="disk-8", resource=PVCS)
    put_disk(setup, {**OLD_VM, "name": "another"}, name="disk-9")
    put_disk(setup, name="disk-10")
    setup.server.put(PVCS, {"metadata": {"name": "disk-11", "namespace": "default", "finalizers": ["cdi"]}})
    setup.server.remove(PVCS, key("disk-11"))
    outcomes = await setup.carry_out(burst(30))
    waiting = [outcome.action.key.name for outcome in outcomes if isinstance(outcome, Postponed)]
    assert waiting == ["vm-7", "vm-8", "vm-9", "vm-11"]
    assert reads(setup) == ONE_BY_ONE + ONE_LIST


async def test_a_list_of_disks_has_pages(setup, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("controller.runtime.execute.disk_check.PAGE", 4)
    for number in range(10):
        put_disk(setup, {**OLD_VM, "name": f"vm-{number}"}, name=f"disk-{number}")
    outcomes = await setup.carry_out(burst(20))
    assert sum(isinstance(outcome, Postponed) for outcome in outcomes) == 10
    assert reads(setup)["list", "datavolumes"] == 3


async def test_if_a_namespace_has_far_more_disks_than_needed_the_disks_are_read_one_by_one(
    setup, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("controller.runtime.execute.disk_check.PAGE", 4)
    needed = FEW + 1
    for number in range(4 + LISTED_FOR_EACH * needed + 1):
        put_disk(setup, name=f"foreign-{number}")
    put_disk(setup, {**OLD_VM, "name": "vm-5"}, name="disk-5")
    outcomes = await setup.carry_out(burst(needed))
    assert [isinstance(outcome, Postponed) for outcome in outcomes] == [number == 5 for number in range(needed)]
    assert reads(setup)["list", "datavolumes"] == 1
    assert reads(setup)["get", "datavolumes"] == needed


@pytest.mark.parametrize("fault", [FORBIDDEN, Lost.AFTER, Garbled()], ids=["forbidden", "lost", "garbled"])
async def test_if_the_list_fails_the_disks_are_read_one_by_one(setup, fault: Fault):
    put_disk(setup, {**OLD_VM, "name": "vm-5"}, name="disk-5")
    setup.server.fault_for = lambda request: fault if request.verb == "list" else None
    outcomes = await setup.carry_out(burst(20))
    assert [isinstance(outcome, Postponed) for outcome in outcomes] == [number == 5 for number in range(20)]
    assert reads(setup)["get", "datavolumes"] == 20


async def test_p10_without_data_volumes_only_the_claims_are_asked_for(setup):
    put_disk(setup, {**OLD_VM, "name": "vm-5"}, name="disk-5", resource=PVCS)
    setup.server.fault_for = lambda request: GONE if request.resource is DATA_VOLUMES else None
    outcomes = await setup.carry_out(burst(20))
    assert [isinstance(outcome, Postponed) for outcome in outcomes] == [number == 5 for number in range(20)]
    assert reads(setup) == ONE_BY_ONE + ONE_LIST


def test_p22_the_delay_of_a_postponed_create_grows_up_to_30_seconds():
    delays = [postponed_s(Postponed(create(), "a disk", waited_s)) for waited_s in (0, 2, 8, 60, 7200)]
    assert delays == [POSTPONED_S, POSTPONED_S, 2, 15, LONGEST_POSTPONED_S]


@pytest.mark.parametrize("is_seen", [False, True], ids=["new", "seen by KubeVirt"])
async def test_p22_a_vm_whose_owner_a_policy_takes_back_goes_unless_it_may_own_a_disk(setup, is_seen: bool):
    def see(request: Request, _before: object) -> None:
        if request.verb == "create" and is_seen:
            setup.server.change(VMS, request.key, {"metadata": {"labels": {"seen": "true"}}})

    setup.server.on_write = see
    outcome = await setup.rejected(replace(create("vm-0", "disk"), owner_uid="a policy has taken it off"))
    assert outcome.message == "a policy takes ownerReferences of vm-0 back"
    assert (setup.server.find(VMS, key("vm-0")) is not None) is is_seen
