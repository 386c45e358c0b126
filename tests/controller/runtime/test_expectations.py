"""Expectations with the real store: writes that the store does not show yet (R9).

The property test beside this file shows the rules for any order of writes and changes of the cache.
"""

import pytest
from msgspec.structs import replace

from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.runtime.actions import Done, Unknown
from controller.runtime.settle.expectations import GIVE_UP_AFTER_S
from tests.controller.runtime.expectations_setup import (
    LOST,
    OWNER,
    UID,
    ExpectationsSetup,
    an_object,
    created,
    deleted,
    patched,
)


@pytest.fixture
def setup() -> ExpectationsSetup:
    return ExpectationsSetup()


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


def test_r9_after_a_restore_of_etcd_earlier_writes_are_not_awaited(setup):
    setup.record(Done(created("x"), "14"), Done(deleted("y"), "15"), Unknown(created("z"), LOST))
    assert not setup.settled()
    setup.store.commit(setup.store.begin_replace(scope="a"), "7", scope="a", rewound=True)
    assert setup.settled()
    setup.record(Done(created("x"), "9"))
    assert not setup.settled()
    setup.store.advance("9", scope="a")
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
