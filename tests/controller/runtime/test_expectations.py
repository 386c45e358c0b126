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
    OPAQUE,
    OWNER,
    UID,
    UNWATCHED,
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


def test_nothing_written_is_settled(setup):
    assert setup.settled()


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
    setup.store.remove(held_by_finalizer(), scope="a")
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


def test_r9_the_version_of_another_namespace_does_not_count(setup):
    setup.record(Done(created(), "12"))
    setup.store.advance("20", scope="b")
    assert not setup.settled()


def test_r9_after_a_restore_of_etcd_earlier_writes_are_not_awaited(setup):
    setup.record(Done(created("x"), "14"), Done(deleted("y"), "15"), Unknown(created("z"), LOST))
    assert not setup.settled()
    setup.store.commit(setup.store.begin_replace(scope="a"), "7", scope="a", rewound=True)
    assert setup.settled()
    setup.record(Done(created("x"), "9"))
    assert not setup.settled()
    setup.store.advance("9", scope="a")
    assert setup.settled()


def test_r9_the_last_of_several_writes_is_awaited(setup):
    setup.record(Done(created("x"), "14"), Done(created("y"), "12"))
    setup.record(Done(patched("z"), "13"))
    setup.store.advance("13", scope="a")
    assert not setup.settled()
    setup.store.advance("14", scope="a")
    assert setup.settled()


@pytest.mark.parametrize("version", ["", "v12", "1e3", "-12", "１２"])
def test_a_version_that_is_not_a_number_is_not_awaited(setup, version: str):
    setup.record(Done(created(), version))
    assert setup.settled()


def test_a_store_whose_versions_are_not_numbers_is_not_awaited(setup):
    setup.record(Done(created(resource=OPAQUE), "12"))
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
            setup.store.remove(an_object("vm", version="21"), scope="a")
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
        Missing(patched()),
        Missing(rebased()),
        Done(disowned(), "12"),
        Missing(disowned()),
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


@pytest.mark.parametrize(
    ("write", "cached", "later"),
    [
        pytest.param(created(), (), an_object("vm", version="11"), id="create"),
        pytest.param(
            deleted(), (an_object("vm", version="11"),), an_object("vm", version="12", deleting=True), id="delete"
        ),
    ],
)
def test_r9_the_store_confirms_a_lost_write(
    setup: ExpectationsSetup, write: Write, cached: tuple[VirtualMachineInstance, ...], later: VirtualMachineInstance
):
    for each in cached:
        setup.store.apply(each, scope="a")
    setup.record(Unknown(write, LOST))
    setup.store.apply(later, scope="a")
    assert setup.expectations.unresolved(OWNER, UID) == ()
    assert setup.settled()


def test_r9_the_outcome_of_a_resolved_write_is_awaited(setup):
    write = created()
    setup.record(Unknown(write, LOST))
    setup.expectations.resolve(OWNER, write, AlreadyThere(write, "12"))
    assert setup.expectations.unresolved(OWNER, UID) == ()
    assert not setup.settled()
    setup.store.advance("12", scope="a")
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


def test_an_expectation_that_is_met_at_the_deadline_is_not_given_up(setup):
    setup.record(Done(created(), "12"))
    setup.now += GIVE_UP_AFTER_S
    setup.store.advance("12", scope="a")
    assert setup.settled()
    assert setup.given_up == 0


def test_a_new_set_of_the_same_name_does_not_wait_for_writes_of_the_old_set(setup):
    setup.record(Done(created(), "12"), Unknown(created("x"), LOST))
    assert setup.expectations.unresolved(OWNER, "uid-2") == ()
    assert setup.settled("uid-2")


def test_a_deleted_set_leaves_no_expectations(setup):
    setup.record(Done(created(), "12"))
    setup.now += 10
    assert setup.expectations.oldest_s() == 10
    setup.expectations.forget(OWNER)
    assert setup.expectations.oldest_s() == 0


def test_a_resource_without_a_store_is_not_awaited_but_can_be_unresolved(setup):
    setup.record(Done(created(resource=UNWATCHED), "12"), Done(deleted(resource=UNWATCHED)))
    assert setup.settled()
    setup.record(Unknown(deleted(resource=UNWATCHED), LOST))
    assert not setup.settled()
    assert len(setup.expectations.unresolved(OWNER, UID)) == 1


def test_r9_the_store_does_not_confirm_a_lost_merge(setup):
    """A newer version in the store does not prove that the server has done the merge. Another write may have made this
    version.
    """
    setup.record(Unknown(rebased(), LOST))
    setup.store.apply(an_object("vm", version="50"), scope="a")
    assert setup.expectations.unresolved(OWNER, UID) == (rebased(),)
    setup.expectations.resolve(OWNER, rebased(), None)
    assert not setup.settled(), "it is this one doubt that is resolved, and not one like it"
