"""The sets and pools in a bad state have series, and others have none."""

from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from controller.kubevirt.annotations import ROLLING_UPDATE
from controller.metrics.objects import Figures, SetFigures
from controller.metrics.registry import Metrics
from controller.pool.spec.intent import parse_intent as parse_pool
from controller.replicaset.intent import parse_intent as parse_set
from controller.runtime.actions import Notice
from informers.meta import ObjectKey
from tests.builders import replicaset
from tests.metrics_page import samples_of
from tests.pool_builders import pool

POOL = "VirtualMachinePool"
SET = "VirtualMachineInstanceReplicaSet"
BUSY = "vmherd_replicas_busy"
WEB = ObjectKey("shop", "web")


def held(metrics: Metrics) -> set[tuple[str, str]]:
    labels = (sample.labels for sample in samples_of(metrics) if sample.name == "vmherd_held")
    return {(each["name"], each["reason"]) for each in labels}


def figures(name: str = "web", **changes: Any) -> SetFigures:
    usual = {"kind": POOL, "namespace": "shop", "desired": 5, "current": 5, "ready": 5, "updated": 5}
    return SetFigures(name=name, **{**usual, **changes})


def values(metrics: Metrics, name: str) -> dict[str, float]:
    return {sample.labels["name"]: sample.value for sample in samples_of(metrics) if sample.name == name}


def showing(*shown: SetFigures) -> Metrics:
    metrics = Metrics(CollectorRegistry())
    metrics.show_replicas(lambda: shown)
    return metrics


def notices(*reasons: str) -> list[Notice]:
    return [Notice(reason=reason, message="why") for reason in reasons]


def test_a_pool_is_held_until_a_plan_has_no_such_notice():
    metrics = showing(figures(), figures("other"))
    metrics.planned(POOL, WEB, notices("HealingHeld", "HealingHeld", "FieldIgnored"), {})
    assert held(metrics) == {("web", "HealingHeld")}
    metrics.planned(POOL, WEB, notices("RolloutStalled", "UpdateHeld"), {})
    assert held(metrics) == {("web", "RolloutStalled"), ("web", "UpdateHeld")}
    metrics.planned(POOL, WEB, [], {})
    assert held(metrics) == set()


def test_a_deleted_object_is_held_no_longer():
    metrics = showing(figures())
    metrics.planned(POOL, WEB, notices("HealingHeld"), {})
    metrics.owner_gone(POOL, WEB)
    assert held(metrics) == set()


def test_p24_an_object_has_busy_replicas_since_its_first_plan():
    metrics = showing(figures(), figures("not yet planned"))
    assert values(metrics, BUSY) == {}
    for number in (3, 0):
        metrics.planned(POOL, WEB, [], {"busy": number, "claimed": number + 1})
        assert values(metrics, BUSY) == {"web": number}
        assert values(metrics, "vmherd_replicas_claimed") == {"web": number + 1}
        assert values(metrics, "vmherd_replicas_standby") == {}
    metrics.owner_gone(POOL, WEB)
    assert values(metrics, BUSY) == {}


def test_a_process_that_waits_for_the_lease_measures_no_readiness():
    metrics = Metrics(CollectorRegistry())
    metrics.leading("vmherd", master=False)
    metrics.became_ready(POOL, after_s=70)
    metrics.leading("vmherd", master=True)
    metrics.became_ready(POOL, after_s=70)
    text = metrics.page().render()[0].decode()
    assert f'vmherd_create_to_ready_seconds_count{{kind="{POOL}"}} 1.0' in text
    assert f'vmherd_create_to_ready_seconds_bucket{{kind="{POOL}",le="60.0"}} 0.0' in text
    assert f'vmherd_create_to_ready_seconds_bucket{{kind="{POOL}",le="90.0"}} 1.0' in text


def test_only_objects_that_lack_ready_replicas_show_them_with_their_limit():
    metrics = showing(
        figures(), figures("lacks", ready=2, max_unavailable=1), figures("free", ready=4), figures("more", ready=6)
    )
    assert values(metrics, "vmherd_replicas_unavailable") == {"lacks": 3, "free": 1}
    assert values(metrics, "vmherd_replicas_max_unavailable") == {"lacks": 1}


@pytest.mark.parametrize(
    ("spec", "limit"),
    [
        ({}, 8),
        ({"maxUnavailable": 2}, 2),
        ({"maxUnavailable": "25%"}, 2),
        ({"maxUnavailable": "1%"}, 1),
        ({"maxUnavailable": "none"}, None),
        ({"replicas": None}, 1),
    ],
)
def test_the_limit_of_a_pool_is_its_max_unavailable(spec: dict[str, Any], limit: int | None):
    owner = pool(**{"replicas": 8, **spec})
    [found] = Figures(POOL, "pool.kubevirt.io", parse_pool).read([owner])
    assert found.max_unavailable == limit


@pytest.mark.parametrize(
    ("allowance", "replicas", "limit"),
    [
        ("", 8, None),
        ("maxUnavailable=25%", 8, 2),
        ("yes", 8, None),
        ("maxUnavailable=100%", None, 1),
        ("maxSurge=1,maxUnavailable=0", 8, 0),
    ],
)
def test_the_limit_of_a_set_is_that_of_its_rolling_update(allowance: str, replicas: int | None, limit: int | None):
    owner = replicaset(replicas=replicas, annotations={ROLLING_UPDATE: allowance} if allowance else None)
    [found] = Figures(SET, "kubevirt.io", parse_set).read([owner])
    assert found.max_unavailable == limit


def test_the_limit_is_read_only_while_replicas_lack():
    owner = pool(replicas=1, status={"replicas": 1, "readyReplicas": 1})
    [found] = Figures(POOL, "pool.kubevirt.io", parse_pool).read([owner])
    assert found.max_unavailable is None
