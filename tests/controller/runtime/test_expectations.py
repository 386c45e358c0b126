"""Expectations with the real store: writes that the store does not show yet (R9)."""

import pytest
from msgspec.structs import replace

from controller.kubevirt.resources import VMIS
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.runtime.actions import AlreadyThere, Confirm, Done, Missing, Outcome, Rejected, Skipped, Unknown
from controller.runtime.settle.expectations import GIVE_UP_AFTER_S, Write
from tests.controller.runtime.expectations_setup import (
    LOST,
    NO,
    OWNER,
    UID,
    ExpectationsSetup,
    an_object,
    created,
    deleted,
    disowned,
    patched,
    rebased,
)


@pytest.fixture
def setup() -> ExpectationsSetup:
    return ExpectationsSetup()


@pytest.mark.parametrize(
    "outcome", [Done(created(), "12"), AlreadyThere(created(), "12"), Done(patched(), "12"), Done(rebased(), "12")]
)
def test_r9_a_write_is_awaited_until_the_store_has_seen_its_version(setup, outcome: Outcome):
    setup.record(outcome)
    assert not setup.settled()
    setup.store.advance("11", scope="a")
    assert setup.expectations.unsettled() == [OWNER]
    assert not setup.settled()
    setup.store.advance("12", scope="a")
    assert setup.expectations.unsettled() == []
    assert setup.settled()


def held_by_finalizer(*, uid: str = "old", finalizers: tuple[str, ...] = ("ours",)) -> VirtualMachineInstance:
    made = an_object("vm", version="9", uid=uid, deleting=True)
    return replace(made, metadata=replace(made.metadata, finalizers=finalizers))


REMOVAL = replace(patched(), uid="old", finalizer="ours")


def test_r9_the_removal_of_the_last_finalizer_is_awaited_although_its_answer_has_an_old_version(setup):
    setup.store.apply(held_by_finalizer(), scope="a")
    setup.record(Done(REMOVAL, "9"))
    assert not setup.settled()
    setup.store.remove(held_by_finalizer().metadata, scope="a")
    assert setup.settled()


@pytest.mark.parametrize(
    "later",
    [
        held_by_finalizer(finalizers=("theirs",)),
        held_by_finalizer(uid="a-new-object-of-the-same-name"),
        held_by_finalizer(finalizers=("theirs", "ours")),
    ],
)
def test_r9_the_removal_of_a_finalizer_is_shown_by_a_newer_object(setup, later):
    setup.store.apply(held_by_finalizer(), scope="a")
    setup.record(Done(REMOVAL, "9"))
    setup.store.apply(replace(later, metadata=replace(later.metadata, resource_version="11")), scope="a")
    assert setup.settled()


def test_r9_after_a_restore_of_etcd_earlier_writes_are_not_awaited(setup):
    setup.record(Done(created("x"), "14"), Done(deleted("y"), "15"), Unknown(created("z"), LOST))
    assert not setup.settled()
    setup.store.commit(setup.store.begin_replace(scope="a"), "7", scope="a", rewound=True)
    assert setup.settled()
    setup.record(Done(created("x"), "9"))
    assert not setup.settled()
    setup.store.advance("9", scope="a")
    assert setup.settled()


@pytest.mark.parametrize("version", ["", "v12", "1e3", "-12", "１２"])
def test_a_version_that_is_not_a_number_is_not_awaited(setup, version: str):
    setup.record(Done(created(), version))
    assert setup.settled()


def test_r9_an_object_that_the_server_does_not_have_is_awaited_until_the_cache_loses_it(setup):
    here = an_object("vm", version="9", uid="old")
    setup.store.apply(here, scope="a")
    setup.record(Missing(replace(patched(), uid="another")), Missing(rebased()), Missing(disowned()))
    assert setup.settled(), "a VM that has left its pool is missing too, and stays"
    setup.record(Missing(replace(patched(), uid="old")))
    assert not setup.settled()
    setup.store.remove(here.metadata, scope="a")
    assert setup.settled()


@pytest.mark.parametrize("outcome", [Done(deleted()), Missing(deleted())])
@pytest.mark.parametrize("shown_as", ["gone", "being deleted", "another"])
def test_r9_a_deletion_is_awaited_until_the_store_shows_it(setup, outcome: Outcome, shown_as: str):
    setup.store.apply(an_object("vm", version="11"), scope="a")
    setup.record(outcome)
    setup.store.advance("20", scope="a")
    assert not setup.settled(), "a deletion has no version to wait for"
    match shown_as:
        case "gone":
            setup.store.remove(an_object("vm", version="21").metadata, scope="a")
        case "being deleted":
            setup.store.apply(an_object("vm", version="21", deleting=True), scope="a")
        case "another":
            setup.store.apply(an_object("vm", version="21", uid="new"), scope="a")
    assert setup.settled()


@pytest.mark.parametrize(
    "outcome",
    [
        Rejected(created(), NO),
        Rejected(deleted(), NO),
        Skipped(created()),
        Done(disowned(), "12"),
        Unknown(disowned(), LOST),
        Done(Confirm(resource=VMIS, key=OWNER, uid=UID, why="")),
    ],
)
def test_a_write_that_did_not_happen_is_not_awaited(setup, outcome: Outcome):
    setup.store.apply(an_object("vm", version="11"), scope="a")
    setup.record(outcome)
    assert setup.settled()


@pytest.mark.parametrize("write", [created(), deleted(), patched(), rebased()])
def test_r9_a_write_with_a_lost_answer_is_unresolved_at_any_version_of_the_store(
    setup: ExpectationsSetup, write: Write
):
    setup.store.apply(an_object("vm", version="11", owner_uid="somebody-else"), scope="a")
    setup.record(Unknown(write, LOST))
    setup.store.advance("99", scope="a")
    assert not setup.settled()
    assert setup.expectations.unresolved(OWNER, UID) == (write,)
    setup.expectations.resolve(OWNER, write, None)
    assert setup.settled()


def test_r9_after_five_minutes_the_key_counts_as_settled_and_the_metric_counts_it(setup):
    setup.record(Done(created(), "12"), Unknown(created("x"), LOST))
    setup.now += GIVE_UP_AFTER_S - 1
    assert not setup.settled()
    setup.now += 1
    assert setup.expectations.unresolved(OWNER, UID) == ()
    assert setup.settled()
    assert setup.given_up == 1
    assert setup.settled()
    assert setup.given_up == 1, "what was given up is forgotten"
