"""The status after a reconciliation, and the patch of this status.

The patch has only fields that the API server serves. A status that has not changed is not sent again.
"""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from controller.kinds import POOLS
from controller.kubevirt.pool_types import Pool, PoolStatus
from controller.kubevirt.replicaset_types import ReplicaSetStatus
from controller.replicaset.status import PAUSED
from controller.runtime.status import recounted, status_patch
from tests import pool_builders
from tests.builders import replicaset, snapshot, vmi

KNOWN = POOLS.known_status or frozenset()
CONDITION = msgspec.to_builtins(PAUSED)
AS_KEPT = {"replicas": 3, "readyReplicas": 3, "labelSelector": "app=web"}


def test_r11_a_pass_reports_the_latest_members_under_the_generation_it_worked_from():
    planned = snapshot(replicaset(generation=1, replicas=3))
    newer = replicaset(generation=2, replicas=9, paused=True, status=ReplicaSetStatus(replicas=1))
    latest = snapshot(newer, [vmi(owner=newer)])
    told = recounted(planned, latest)
    assert told.members == latest.members
    assert told.owner.metadata.generation == 1
    assert told.owner.spec == planned.owner.spec
    assert told.owner.status == newer.status


def test_r11_a_pass_writes_no_status_for_another_set_of_the_same_name():
    assert recounted(snapshot(replicaset(uid="old")), snapshot(replicaset(uid="new"))) is None


def pool_with(status: dict[str, Any] | None) -> Pool:
    return pool_builders.pool(status=status)


def patch_of(owner: Pool, **changes: Any) -> dict[str, Any] | None:
    """The patch that changes these fields of the pool's status.

    Fields outside KubeVirt's status schema are left out.
    """
    body = status_patch(owner, msgspec.convert({**AS_KEPT, **changes}, PoolStatus), known=KNOWN)
    return None if body is None else msgspec.json.decode(body)


def test_fields_that_are_not_in_the_schema_are_not_sent():
    owner = pool_with(None)
    body = patch_of(owner, updatedReplicas=3, printableStatus="Running", observedGeneration=4)
    assert body is not None
    assert set(body["status"]) == KNOWN
    assert body["metadata"] == {"uid": owner.metadata.uid, "resourceVersion": owner.metadata.resource_version}


def test_conditions_are_compared_as_they_are():
    held = pool_with({**AS_KEPT, "conditions": [CONDITION]})
    assert patch_of(held, conditions=[CONDITION], observedGeneration=9) is None
    assert patch_of(held, conditions=[{**CONDITION, "reason": "Other"}]) is not None
    gone = patch_of(held)
    assert gone is not None
    assert gone["status"]["conditions"] is None


COUNTS = st.none() | st.integers(0, 5)
STATUSES = st.fixed_dictionaries(
    {},
    optional={
        "replicas": COUNTS,
        "readyReplicas": COUNTS,
        "updatedReplicas": COUNTS,
        "observedGeneration": COUNTS,
        "labelSelector": st.sampled_from([None, "a=b", ""]),
        "printableStatus": st.sampled_from([None, "Running"]),
        "conditions": st.sampled_from([None, [], [CONDITION]]),
    },
)


@given(STATUSES, STATUSES)
def test_after_the_server_dropped_unknown_fields_nothing_is_left_to_write(held, wanted):
    status = msgspec.convert(wanted, PoolStatus)
    body = status_patch(pool_with(held), status, known=KNOWN)
    fields = msgspec.json.decode(body)["status"] if body else {}
    merged = {**{field: value for field, value in held.items() if field in KNOWN}, **fields}
    later = pool_with({field: value for field, value in merged.items() if value is not None})
    assert status_patch(later, status, known=KNOWN) is None
