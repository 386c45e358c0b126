"""Rules that raise an exception that they should not raise. Only this one object is stalled."""

from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest

from controller.pool.rules import PoolRules
from controller.replicaset.rules import ReplicaSetRules
from informers.meta import ObjectKey
from tests.builders import REPLICASETS
from tests.controller.runtime.test_side_thread import pool_at_rest, set_at_rest
from tests.fakes.requests import AnyResource
from tests.fakes.virtual_time import run
from tests.kstatus import KStatus, kstatus_of
from tests.pool_builders import POOLS

SENTENCE = "vmherd cannot process this object: OverflowError: date value out of range"


@pytest.mark.parametrize("rule", ["take_snapshot", "plan", "next_status"])
@pytest.mark.parametrize(
    ("rules", "resource", "at_rest"), [(PoolRules, POOLS, pool_at_rest), (ReplicaSetRules, REPLICASETS, set_at_rest)]
)
def test_r11_an_unexpected_error_of_a_rule_makes_the_object_stalled_until_the_rule_succeeds(
    monkeypatch: pytest.MonkeyPatch, rules: Any, resource: AnyResource, at_rest: Callable[[int], Any], rule: str
) -> None:
    simulation = at_rest(2)
    [document] = simulation.server.documents(resource).values()
    key = ObjectKey("default", document["metadata"]["name"])

    def reconcile() -> dict[str, Any]:
        simulation.process.catch_up()
        run(simulation.process.reconcile(key))
        return simulation.server.document(resource, key)["status"]

    healthy = reconcile()
    simulation.process.recorder.published.clear()
    with monkeypatch.context() as broken:
        broken.setattr(rules, rule, Mock(side_effect=OverflowError("date value out of range")))
        for _ in range(3):
            with pytest.raises(OverflowError):
                reconcile()
            writes = simulation.server.version
        with pytest.raises(OverflowError):
            reconcile()
        assert simulation.server.version == writes, "the same status is not written again"
    stalled = simulation.server.document(resource, key)
    [condition] = [each for each in stalled["status"]["conditions"] if each["type"] == "Stalled"]
    assert (condition["reason"], condition["message"]) == ("InternalError", SENTENCE)
    assert stalled["status"]["problem"] == SENTENCE
    assert kstatus_of(stalled) == KStatus("Failed", SENTENCE)
    assert {(each.reason, each.message, each.warning, each.once) for each in simulation.process.recorder.published} == {
        ("InternalError", SENTENCE, True, str(stalled["metadata"].get("generation")))
    }
    for counts in ("replicas", "readyReplicas"):
        assert stalled["status"].get(counts) == healthy.get(counts)
    again = reconcile()
    conditions = {each["type"]: each["status"] for each in again["conditions"]}
    assert conditions == {"Available": "True", "Progressing": "True"}
    assert {**again, "conditions": ()} == {**healthy, "conditions": ()}
