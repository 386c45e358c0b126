"""P17 and P18: the patches of a status, and the Events about a pool."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from controller.kubevirt.annotations import PROTECT
from controller.kubevirt.pool_types import PoolStatus
from controller.pool.status import outcome_notices, transition_notices
from controller.runtime.actions import AlreadyThere, Done, Missing, Postponed, Rejected, Skipped, Unknown
from controller.runtime.status import status_patch
from tests.pool_builders import pool, vms
from tests.pool_outcomes import (
    CREATE,
    CREATE_REVISION,
    DELETE,
    DELETE_REVISION,
    FAILURE,
    FOREIGN,
    LOST,
    MERGE,
    NOTE,
    PAUSED,
    QUOTA,
    RELABEL,
    REMOVE_FINALIZER,
    REMOVE_OWNER,
    RESTART,
    WEBHOOK,
    condition,
    status_of,
)


def patched(owner, status) -> dict:
    return json.loads(status_patch(owner, status))


@pytest.mark.parametrize("field", msgspec.structs.fields(PoolStatus), ids=lambda field: field.name)
def test_p17_a_change_of_any_field_is_written(field):
    value = (condition(FOREIGN),) if field.name == "conditions" else 7 if "int" in str(field.type) else "else"
    status = replace(PoolStatus(), **{field.name: value})
    assert patched(pool(), status)["status"][field.encode_name] is not None
    assert status_patch(pool(status=msgspec.to_builtins(status)), status) is None


def events_of(*outcomes):
    return [(each.reason, each.message, each.warning) for each in outcome_notices(outcomes)]


EVENTS = {
    "created": (Done(CREATE), ("SuccessfulCreate", "Created VM default/vm-pool-cirros-0", False)),
    "created before": (AlreadyThere(CREATE), ("SuccessfulCreate", "Created VM default/vm-pool-cirros-0", False)),
    "deleted": (
        Done(DELETE),
        ("SuccessfulDelete", "Deleted VM default/vm-pool-cirros-0: surplus: 4 VMs exist, 3 are wanted", False),
    ),
    "updated": (
        Done(MERGE),
        ("SuccessfulUpdate", "Updated VM default/vm-pool-cirros-0: restart, from revision web-1 to web-2", False),
    ),
    "restarted": (
        Done(RESTART),
        ("SuccessfulDelete", "Deleted VMI default/vm-pool-cirros-0: its template is older than revision web-2", False),
    ),
    "create rejected": (
        Rejected(CREATE, QUOTA),
        ("FailedCreate", "Error creating VM default/vm-pool-cirros-0: exceeded quota: 3 of 3", True),
    ),
    "delete rejected": (
        Rejected(DELETE, QUOTA),
        ("FailedDelete", "Error deleting VM default/vm-pool-cirros-0: exceeded quota: 3 of 3", True),
    ),
    "update rejected": (
        Rejected(MERGE, QUOTA),
        ("FailedUpdate", "Error updating VM default/vm-pool-cirros-0: exceeded quota: 3 of 3", True),
    ),
    "label rejected": (
        Rejected(RELABEL, QUOTA),
        ("FailedUpdate", "Error updating VMI default/vm-pool-cirros-0: exceeded quota: 3 of 3", True),
    ),
    "webhook broken": (
        Unknown(CREATE, WEBHOOK),
        ("FailedCreate", "Error creating VM default/vm-pool-cirros-0: failed calling webhook", True),
    ),
}


WITHOUT_EVENT = {
    "a lost connection": Unknown(CREATE, LOST),
    "deleted already": Missing(DELETE),
    "skipped": Skipped(CREATE),
    "postponed": Postponed(CREATE, "a disk"),
    "a removed finalizer": Done(REMOVE_FINALIZER),
    "a label": Done(RELABEL),
    "a created revision": Done(CREATE_REVISION),
    "a deleted revision": Done(DELETE_REVISION),
    "a kept disk": Done(REMOVE_OWNER),
    "a note on the pool": Done(NOTE),
}


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [*EVENTS.values(), *((each, None) for each in WITHOUT_EVENT.values())],
    ids=[*EVENTS, *WITHOUT_EVENT],
)
def test_p18_each_outcome_gives_its_event_or_none(outcome, expected):
    assert events_of(outcome) == ([expected] if expected else [])


def transition(old, new):
    def status(*conditions):
        return PoolStatus(conditions=tuple(map(condition, conditions)) or None)

    before = None if old is None else status(*old)
    return [(each.reason, each.message, each.warning) for each in transition_notices(before, status(*new))]


TRANSITIONS = {
    "paused": ([], [PAUSED], [("SuccessfulPaused", "Pool is paused", False)]),
    "paused from the start": (None, [PAUSED], [("SuccessfulPaused", "Pool is paused", False)]),
    "resumed": ([PAUSED], [], [("SuccessfulResume", "Pool is unpaused", False)]),
    "still paused": ([PAUSED], [PAUSED], []),
    "still not paused": ([FAILURE], [], []),
    "the first status": (None, [], []),
    "paused with status False before": (
        [{**PAUSED, "status": "False"}],
        [PAUSED],
        [("SuccessfulPaused", "Pool is paused", False)],
    ),
}


UPDATE_FAILURE = {**FAILURE, "reason": "FailedUpdate", "message": "error during VM update: no"}
FAILURE_EVENT = ("FailedScaleOut", "error during scale out: exceeded quota: 3 of 3", True)
FAILURES = {
    "the first failure": ([], [FAILURE], [FAILURE_EVENT]),
    "a failure from the start": (None, [FAILURE], [FAILURE_EVENT]),
    "the same failure with another message": ([{**FAILURE, "message": "4 of 4"}], [FAILURE], []),
    "a failure with another reason": ([UPDATE_FAILURE], [FAILURE], [FAILURE_EVENT]),
    "the end of a failure": ([FAILURE], [], []),
    "a failure and a pause": ([], [FAILURE, PAUSED], [("SuccessfulPaused", "Pool is paused", False), FAILURE_EVENT]),
}


@pytest.mark.parametrize(
    ("old", "new", "expected"), [*TRANSITIONS.values(), *FAILURES.values()], ids=[*TRANSITIONS, *FAILURES]
)
def test_p17_a_new_failure_of_the_pool_gives_one_event(old, new, expected):
    assert transition(old, new) == expected


OUTCOMES = [Done(CREATE), Rejected(CREATE, QUOTA), Unknown(DELETE, LOST), Skipped(MERGE), Missing(DELETE)]


@given(st.lists(st.sampled_from(OUTCOMES), max_size=4), st.sampled_from([None, FAILURE]), st.booleans())
def test_the_same_outcomes_after_a_written_status_give_no_further_patch(outcomes, before, paused):
    owner = pool(paused=paused, status={"conditions": [before] if before else None})
    machines = vms(owner, 0, 1, annotations={PROTECT: "true"})
    written = replace(owner, status=status_of(owner, *machines, outcomes=outcomes))
    assert status_patch(written, status_of(written, *machines, outcomes=outcomes)) is None
