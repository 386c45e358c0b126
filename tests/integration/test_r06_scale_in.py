"""R6: invalid annotations. The order of deletions is in test_r06_order.py."""

from __future__ import annotations

import pytest

from tests.integration.controller_process import ReplicaSetNamespace, eventually

pytestmark = pytest.mark.cluster

MARK = "vmherd.dev"


def annotate(sets: ReplicaSetNamespace, name: str, **annotations: str) -> None:
    texts = {f"{MARK}/{key.replace('_', '-')}": value for key, value in annotations.items()}
    sets.change_vmi(name, {"metadata": {"annotations": texts}})


def mark_seen(sets: ReplicaSetNamespace) -> None:
    """Wait until the controller has seen the earlier changes of all VMIs.

    The test makes one more change, and waits until the status counts it.
    """
    sets.play_all()
    eventually(lambda: sets.status().get("readyReplicas") == len(sets.alive()))


def test_r6_an_invalid_cost_counts_as_zero_and_an_event_reports_it(sets: ReplicaSetNamespace) -> None:
    sets.make_set(2)
    first, second = sorted(sets.wait_for(2))
    annotate(sets, first, deletion_cost="a lot")
    annotate(sets, second, deletion_cost="1")
    mark_seen(sets)
    sets.change_set({"spec": {"replicas": 1}})
    eventually(lambda: len(sets.vmis()) == 1)
    assert sorted(sets.vmis()) == [second]
    eventually(lambda: sets.reasons()["InvalidAnnotation"] == 1, what="a warning Event")
