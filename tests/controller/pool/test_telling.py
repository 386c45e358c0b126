"""P17 and P18: what is written of a status, and what a pool tells in Events."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from controller.kubevirt.annotations import PROTECT
from controller.kubevirt.pool_types import PoolStatus
from controller.pool.status import outcome_notices, transition_notices
from controller.runtime.plan import (
    AlreadyThere,
    Done,
    Missing,
    Postponed,
    Rejected,
    Skipped,
    Unknown,
)
from controller.runtime.status import status_patch
from informers.errors import Conflict
from tests.pool_builders import pool, vms
from tests.pool_outcomes import (
    CREATE,
    DELETE,
    DISOWN,
    FAILURE,
    FOREIGN,
    KEEP,
    LET_GO,
    LOST,
    PAUSED,
    PRUNE,
    QUOTA,
    REBASE,
    RECORD,
    RELABEL,
    RESTART,
    WEBHOOK,
    condition,
    failure_of,
    status_of,
)


def patched(owner, status) -> dict:
    return json.loads(status_patch(owner, status))


def test_p17_nothing_is_written_when_nothing_changed():
    owner = pool(paused=True, status={"conditions": [FOREIGN, FAILURE]})
    machines = vms(owner, 0, 1)
    first = status_of(owner, *machines)
    assert status_patch(owner, first) is not None
    written = replace(owner, status=first)
    assert status_patch(written, status_of(written, *machines)) is None


def test_p17_an_empty_list_of_conditions_is_none():
    owner = pool(status={"conditions": []})
    status = status_of(owner)
    assert status_patch(replace(owner, status=replace(status, conditions=())), status) is None


def test_p17_a_patch_is_of_this_pool_and_of_all_fields():
    assert patched(pool(), PoolStatus(replicas=3, printable_status="Running")) == {
        "metadata": {"uid": "uid-of-the-pool", "resourceVersion": "1"},
        "status": {
            "replicas": 3,
            "readyReplicas": None,
            "updatedReplicas": None,
            "observedGeneration": None,
            "labelSelector": None,
            "currentRevision": None,
            "updateRevision": None,
            "printableStatus": "Running",
            "conditions": None,
        },
    }


STATUS_FIELDS = msgspec.structs.fields(PoolStatus)


@pytest.mark.parametrize("field", STATUS_FIELDS, ids=lambda field: field.name)
def test_p17_a_change_of_any_field_is_written(field):
    value = (condition(FOREIGN),) if field.name == "conditions" else 7 if "int" in str(field.type) else "else"
    status = replace(PoolStatus(), **{field.name: value})
    assert patched(pool(), status)["status"][field.encode_name] is not None
    assert status_patch(pool(status=msgspec.to_builtins(status)), status) is None


def told(*outcomes):
    return [(each.reason, each.message, each.warning) for each in outcome_notices(outcomes)]


EVENTS = {
    "created": (Done(CREATE), ("SuccessfulCreate", "Created VM default/vm-pool-cirros-0", False)),
    "created before": (AlreadyThere(CREATE), ("SuccessfulCreate", "Created VM default/vm-pool-cirros-0", False)),
    "deleted": (
        Done(DELETE),
        ("SuccessfulDelete", "Deleted VM default/vm-pool-cirros-0: surplus: 4 are there, 3 wanted", False),
    ),
    "updated": (Done(REBASE), ("SuccessfulUpdate", "Updated VM default/vm-pool-cirros-0", False)),
    "restarted": (
        Done(RESTART),
        (
            "SuccessfulDelete",
            "Deleted VMI default/vm-pool-cirros-0: it runs an older template than web-2",
            False,
        ),
    ),
    "create refused": (
        Rejected(CREATE, QUOTA),
        ("FailedCreate", "Error creating VM default/vm-pool-cirros-0: exceeded quota: 3 of 3", True),
    ),
    "delete refused": (
        Rejected(DELETE, QUOTA),
        ("FailedDelete", "Error deleting VM default/vm-pool-cirros-0: exceeded quota: 3 of 3", True),
    ),
    "update refused": (
        Rejected(REBASE, QUOTA),
        ("FailedUpdate", "Error updating VM default/vm-pool-cirros-0: exceeded quota: 3 of 3", True),
    ),
    "webhook broken": (
        Unknown(CREATE, WEBHOOK),
        ("FailedCreate", "Error creating VM default/vm-pool-cirros-0: failed calling webhook", True),
    ),
}


@pytest.mark.parametrize(("outcome", "expected"), EVENTS.values(), ids=EVENTS)
def test_p18_what_is_told_of_a_write(outcome, expected):
    assert told(outcome) == [expected]


UNTOLD = {
    "a lost connection": Unknown(CREATE, LOST),
    "somebody else deleted it": Missing(DELETE),
    "not tried": Skipped(CREATE),
    "put off": Postponed(CREATE),
    "let go": Done(LET_GO),
    "a label": Done(RELABEL),
    "a revision kept": Done(KEEP),
    "a revision pruned": Done(PRUNE),
    "a disk kept": Done(DISOWN),
    "what is being healed": Done(RECORD),
}


@pytest.mark.parametrize("outcome", UNTOLD.values(), ids=UNTOLD)
def test_p18_what_is_not_told(outcome):
    assert told(outcome) == []


def test_p18_a_refused_label_is_told_as_a_failed_update():
    [(reason, message, warning)] = told(Rejected(RELABEL, QUOTA))
    assert (reason, warning) == ("FailedUpdate", True)
    assert message == "Error updating VMI default/vm-pool-cirros-0: exceeded quota: 3 of 3"


def transition(old, new):
    def status(*conditions):
        return PoolStatus(conditions=tuple(map(condition, conditions)) or None)

    before = None if old is None else status(*old)
    return [(each.reason, each.message, each.warning) for each in transition_notices(before, status(*new))]


TRANSITIONS = {
    "paused": ([], [PAUSED], [("SuccessfulPaused", "Pool is paused", False)]),
    "paused from the start": (None, [PAUSED], [("SuccessfulPaused", "Pool is paused", False)]),
    "resumed": ([PAUSED], [], [("SuccessfulResume", "Pool is unpaused", False)]),
    "still paused": ([PAUSED], [PAUSED, FAILURE], []),
    "still not": ([FAILURE], [], []),
    "the first status": (None, [], []),
    "said not to be paused": (
        [{**PAUSED, "status": "False"}],
        [PAUSED],
        [("SuccessfulPaused", "Pool is paused", False)],
    ),
}


@pytest.mark.parametrize(("old", "new", "expected"), TRANSITIONS.values(), ids=TRANSITIONS)
def test_p17_pausing_and_resuming_are_told(old, new, expected):
    assert transition(old, new) == expected


OUTCOMES = [Done(CREATE), Rejected(CREATE, QUOTA), Unknown(DELETE, LOST), Skipped(REBASE), Missing(DELETE)]


@given(st.lists(st.sampled_from(OUTCOMES), max_size=4), st.sampled_from([None, FAILURE]), st.booleans())
def test_a_status_that_was_written_is_the_status_of_the_next_pass(outcomes, held, paused):
    """The same outcomes again change nothing, so a failure that lasts is written once."""
    owner = pool(paused=paused, status={"conditions": [held] if held else None})
    machines = vms(owner, 0, 1, annotations={PROTECT: "true"})
    first = status_of(owner, *machines, outcomes=outcomes)
    written = replace(owner, status=first)
    assert status_patch(written, status_of(written, *machines, outcomes=outcomes)) is None


def test_a_conflict_is_a_failure_only_for_as_long_as_it_lasts():
    assert failure_of([Rejected(RELABEL, Conflict("replaced", code=409))]) is not None
    assert failure_of([Done(RELABEL)], held=FAILURE) is None
