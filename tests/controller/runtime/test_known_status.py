"""A status cut down to what KubeVirt's definitions know: nothing else is sent, and nothing is sent twice."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.kubevirt.conditions import PAUSED
from controller.kubevirt.pool_types import Pool, PoolStatus
from controller.kubevirt.replicaset_types import ReplicaSetStatus
from controller.kubevirt.resources import VMIS
from controller.kubevirt.status_patch import status_patch
from controller.replicaset.rules import ReplicaSetRules
from controller.runtime.known_status import KNOWN, KnownStatus, known_part
from controller.runtime.plan import Notice
from controller.runtime.reconciler import StatusUpdate
from informers.store import Store
from tests import pool_builders
from tests.builders import REPLICASETS, replicaset, snapshot

CONDITION = msgspec.to_builtins(PAUSED)


def pool_with(status: dict[str, Any] | None) -> Pool:
    return pool_builders.pool(status=status)


def update_of(owner: Pool, **changes: Any) -> StatusUpdate | None:
    """The update of a pool to what it reports, with changes."""
    wanted = {"replicas": 3, "readyReplicas": 3, "labelSelector": "app=web", **changes}
    body = status_patch(owner, msgspec.convert(wanted, PoolStatus))
    return None if body is None else StatusUpdate(body, (Notice(reason="R", message="m"),))


def pruned(update: StatusUpdate | None, owner: Pool) -> dict[str, Any] | None:
    assert update is not None
    left = known_part(update, owner)
    return None if left is None else msgspec.json.decode(left.body)


AS_KEPT = {"replicas": 3, "readyReplicas": 3, "labelSelector": "app=web"}


def test_fields_that_kubevirt_does_not_know_are_not_sent():
    owner = pool_with(None)
    body = pruned(update_of(owner, updatedReplicas=3, printableStatus="Running", observedGeneration=4), owner)
    assert body is not None
    assert set(body["status"]) == KNOWN
    assert body["metadata"] == {"uid": owner.metadata.uid, "resourceVersion": owner.metadata.resource_version}


@pytest.mark.parametrize(
    "unknown",
    [
        {"observedGeneration": 7},
        {"updatedReplicas": 3},
        {"currentRevision": "web-1"},
        {"updateRevision": "web-1"},
        {"printableStatus": "Running"},
    ],
)
def test_what_was_dropped_is_not_sent_again(unknown):
    owner = pool_with(AS_KEPT)
    assert pruned(update_of(owner, **unknown), owner) is None


def test_a_field_that_it_knows_is_sent_with_what_is_to_be_told():
    owner = pool_with(AS_KEPT)
    update = update_of(owner, readyReplicas=2, printableStatus="Degraded")
    assert update is not None
    left = known_part(update, owner)
    assert left is not None
    assert msgspec.json.decode(left.body)["status"]["readyReplicas"] == 2
    assert left.notices == update.notices


def test_conditions_are_compared_as_they_are():
    held = pool_with({**AS_KEPT, "conditions": [CONDITION]})
    assert pruned(update_of(held, conditions=[CONDITION], observedGeneration=9), held) is None
    changed = pruned(update_of(held, conditions=[{**CONDITION, "reason": "Other"}]), held)
    assert changed is not None
    gone = pruned(update_of(held), held)
    assert gone is not None
    assert gone["status"]["conditions"] is None


def test_no_conditions_are_as_good_as_an_empty_list_of_them():
    owner = pool_with({**AS_KEPT, "conditions": []})
    assert pruned(update_of(owner, observedGeneration=9), owner) is None


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
def test_after_a_write_that_kubevirts_server_cut_down_there_is_nothing_left_to_write(held, wanted):
    owner = pool_with(held)
    body = status_patch(owner, msgspec.convert(wanted, PoolStatus))
    update = None if body is None else known_part(StatusUpdate(body, ()), owner)
    fields = msgspec.json.decode(update.body)["status"] if update else {}
    merged = {**{field: value for field, value in held.items() if field in KNOWN}, **fields}
    kept = {field: value for field, value in merged.items() if value is not None}
    later = pool_with(kept)
    again = status_patch(later, msgspec.convert(wanted, PoolStatus))
    assert again is None or known_part(StatusUpdate(again, ()), later) is None


def test_the_rules_of_a_kind_are_the_same_but_for_the_status():
    rules = ReplicaSetRules(Store(), Store(), REPLICASETS, VMIS, burst=250)
    known = KnownStatus(rules)
    owner = replicaset(replicas=0)
    seen = snapshot(owner)
    assert (known.name, known.component, known.resource) == (rules.name, rules.component, rules.resource)
    assert known.plan(seen) == rules.plan(seen)
    update = known.status_update(seen, ())
    assert update is not None
    assert set(msgspec.json.decode(update.body)["status"]) == KNOWN
    metadata = msgspec.json.decode(update.body)["metadata"]
    whole = status_patch(owner, ReplicaSetStatus(replicas=1))
    assert metadata == msgspec.json.decode(whole or b"")["metadata"]
