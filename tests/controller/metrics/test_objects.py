from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families as parse_text

from controller.apimachinery.conditions import Condition
from controller.kubevirt.annotations import PARTITION, ROLLING_UPDATE
from controller.kubevirt.pool_types import POOL_KIND as POOL
from controller.kubevirt.pool_types import PoolStatus
from controller.kubevirt.replicaset_types import ReplicaSetStatus
from controller.metrics.objects import Figures, MachineTally, SetFigures, families_of, render
from controller.metrics.registry import Metrics
from controller.pool.spec.intent import parse_intent as parse_pool
from controller.replicaset.intent import parse_intent as parse_set
from controller.runtime.actions import Notice
from informers.meta import ObjectKey, ObjectMeta
from tests.builders import NOW, replicaset
from tests.metrics_page import samples_of
from tests.pool_builders import pool

SET = "VirtualMachineInstanceReplicaSet"


def make(kind: str = POOL, **fields: Any) -> SetFigures:
    usual = {"namespace": "shop", "name": "web", "desired": 5, "current": 4, "ready": 3, "updated": 2}
    return SetFigures(**{"kind": kind, **usual, **fields})


def shown(*figures: SetFigures, **tallies: MachineTally) -> dict[str, float]:
    """All metric samples by name and labels.

    `tallies` maps the name of a pool in the namespace `shop` to its VM counts.
    """
    counts = {(POOL, "shop", name): tally for name, tally in tallies.items()}
    text = render(families_of([figures], counts), openmetrics=False)
    return {
        f"{sample.name}{{{','.join(f'{key}={value}' for key, value in sorted(sample.labels.items()))}}}": sample.value
        for family in parse_text(text)
        for sample in family.samples
    }


@pytest.mark.parametrize(("kind", "prefix"), [(POOL, "vmherd_vmpool"), (SET, "vmherd_vmirs")])
def test_an_object_has_the_series_of_its_kind(kind: str, prefix: str):
    page = shown(
        make(
            kind,
            uid="u1",
            group="example.org",
            paused=True,
            generation=7,
            observed_generation=6,
            created=datetime(2026, 1, 1, tzinfo=UTC),
            printable_status="Updating",
            conditions=(Condition(type="ReplicaFailure", status="True", reason="FailedScaleOut"),),
        )
    )
    of_kind = {name: value for name, value in page.items() if name.startswith("vmherd_vm") and "_total{" not in name}
    place = "name=web,namespace=shop"
    assert of_kind == {
        f"{prefix}_paused{{{place}}}": 1,
        f"{prefix}_replica_failure{{{place}}}": 1,
        f"{prefix}_metadata_generation{{{place}}}": 7,
        f"{prefix}_status_observed_generation{{{place}}}": 6,
        f"{prefix}_create_date_timestamp_seconds{{{place}}}": 1767225600,
        f"{prefix}_info{{group=example.org,{place},uid=u1}}": 1,
        f"{prefix}_status_condition{{condition=ReplicaFailure,{place},reason=FailedScaleOut,status=true}}": 1,
        f"{prefix}_printable_status{{{place},status=Updating}}": 1,
    }


@pytest.mark.parametrize("kind", [POOL, SET])
def test_p30_an_invalid_spec_is_shown_until_it_is_corrected(kind: str):
    def gauges(*conditions: Condition) -> dict[str, float]:
        page = shown(make(kind, conditions=conditions))
        return {name: value for name, value in page.items() if name.startswith("vmherd_spec_invalid")}

    invalid = Condition(type="Stalled", status="True", reason="InvalidSpec")
    assert gauges(invalid) == {f"vmherd_spec_invalid{{kind={kind},name=web,namespace=shop}}": 1}
    assert gauges(Condition(type="Stalled", status="True", reason="UpdateHeld")) == {}
    assert gauges() == {}


def test_the_tally_of_a_deleted_pool_is_not_shown():
    assert shown(web=MachineTally(started=9)) == {}


@pytest.mark.parametrize("text", ['say "no"', "a\\b", "two\nlines", "a{b}=c,d", "größer", "\\n"])
def test_any_text_in_a_status_gives_a_valid_page(text: str):
    figures = make(printable_status=text, conditions=(Condition(type=text, status="True", reason=text),))
    families = parse_text(render(families_of([[figures]], {}), openmetrics=False))
    labels = {sample.name: sample.labels for family in families for sample in family.samples}
    assert labels["vmherd_vmpool_printable_status"]["status"] == text
    assert labels["vmherd_vmpool_status_condition"]["reason"] == text


def test_the_page_shows_objects_unless_another_process_is_the_leader():
    metrics = Metrics(CollectorRegistry())

    def is_shown() -> bool:
        return b"vmherd_replicas" in metrics.page().render()[0]

    assert not is_shown(), "there is no source"
    sets = [make()]
    metrics.show_replicas(lambda: tuple(sets))
    assert is_shown(), "no lease is wanted"
    metrics.leading("vmherd", master=False)
    assert not is_shown()
    metrics.leading("vmherd", master=True)
    assert is_shown()
    sets.clear()
    assert not is_shown()


def test_the_figures_of_a_pool_are_those_of_its_spec_and_status():
    conditions = (Condition(type="ReplicaPaused", status="True"),)
    status = PoolStatus(
        replicas=4,
        ready_replicas=3,
        updated_replicas=2,
        observed_generation=6,
        printable_status="Paused",
        conditions=conditions,
    )
    meta = ObjectMeta(name="web", namespace="shop", uid="u1", generation=7, creation_timestamp=NOW)
    owner = replace(pool(replicas=5, paused=True, maxUnavailable=2), metadata=meta, status=status)
    [figures] = Figures(POOL, "example.org", parse_pool).read([owner])
    assert figures == make(
        uid="u1",
        group="example.org",
        paused=True,
        rolls_out=True,
        max_unavailable=2,
        generation=7,
        observed_generation=6,
        created=NOW,
        printable_status="Paused",
        conditions=conditions,
    )


def test_the_figures_of_a_set_without_a_status_or_without_updated_replicas():
    [figures] = Figures(SET, "kubevirt.io", parse_set).read([replicaset()])
    assert (figures.current, figures.ready, figures.updated, figures.observed_generation) == (0, 0, None, None)
    owner = type(replicaset())(metadata=ObjectMeta(name="a"), status=ReplicaSetStatus(replicas=3))
    [figures] = Figures(SET, "kubevirt.io", parse_set).read([owner])
    assert (figures.desired, figures.current, figures.updated) == (1, 3, None)


@pytest.mark.parametrize(
    ("strategy", "annotations", "rolls"),
    [
        (None, {}, True),
        ({}, {}, True),
        ({"proactive": {}}, {}, True),
        ({"opportunistic": {}}, {}, False),
        ({"unmanaged": {}}, {}, False),
        ({"proactive": {"selectionPolicy": {"sortPolicy": "Newest"}}}, {}, True),
        ({"proactive": {"selectionPolicy": {"selectors": {}}}}, {}, True),
        ({"proactive": {"selectionPolicy": {"selectors": {"labelSelector": {}}}}}, {}, False),
        ({"proactive": {"selectionPolicy": {"selectors": {"nodeSelectorRequirementMatcher": []}}}}, {}, False),
        (None, {PARTITION: "2"}, False),
        ({"neither": {}, "proactive": {}, "unmanaged": {}}, {}, False),
    ],
)
def test_a_pool_rolls_out_unless_its_update_strategy_keeps_outdated_vms(
    strategy: dict[str, Any] | None, annotations: dict[str, str], rolls: bool
):
    owner = pool(namespace="shop", annotations=annotations, updateStrategy=strategy)
    [figures] = Figures(POOL, "pool.kubevirt.io", parse_pool).read([owner])
    assert figures.rolls_out == rolls
    assert shown(figures)[f"vmherd_rolls_out{{kind={POOL},name=web,namespace=shop}}"] == rolls


@pytest.mark.parametrize(("status", "waits"), [("True", True), ("False", False)])
def test_r4a_a_set_in_back_off_has_a_series(status: str, waits: bool):
    page = shown(make(conditions=(Condition(type="ReplicaBackOff", status=status),)))
    assert len([name for name in page if name.startswith("vmherd_back_off")]) == int(waits)


# The sets and pools in a bad state have series, and others have none


POOL = "VirtualMachinePool"
BUSY = "vmherd_replicas_busy"
WEB = ObjectKey("shop", "web")


def held(metrics: Metrics) -> set[tuple[str, str]]:
    labels = (sample.labels for sample in samples_of(metrics) if sample.name == "vmherd_held")
    return {(each["name"], each["reason"]) for each in labels}


def values(metrics: Metrics, name: str) -> dict[str, float]:
    return {sample.labels["name"]: sample.value for sample in samples_of(metrics) if sample.name == name}


def showing(*shown: SetFigures) -> Metrics:
    metrics = Metrics(CollectorRegistry())
    metrics.show_replicas(lambda: shown)
    return metrics


def notices(*reasons: str) -> list[Notice]:
    return [Notice(reason=reason, message="why") for reason in reasons]


def test_a_pool_is_held_until_a_plan_has_no_such_notice_or_the_pool_is_deleted():
    metrics = showing(make(), make(name="other"))
    metrics.planned(POOL, WEB, notices("HealingHeld", "HealingHeld", "FieldIgnored"), {})
    assert held(metrics) == {("web", "HealingHeld")}
    metrics.planned(POOL, WEB, notices("RolloutStalled", "UpdateHeld"), {})
    assert held(metrics) == {("web", "RolloutStalled"), ("web", "UpdateHeld")}
    metrics.planned(POOL, WEB, [], {})
    assert held(metrics) == set()
    metrics.planned(POOL, WEB, notices("HealingHeld"), {})
    metrics.owner_gone(POOL, WEB)
    assert held(metrics) == set()


def test_p24_an_object_has_busy_replicas_since_its_first_plan():
    metrics = showing(make(), make(name="not yet planned"))
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
        make(ready=5),
        make(name="lacks", ready=2, max_unavailable=1),
        make(name="free", ready=4),
        make(name="more", ready=6),
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
        ({"replicas": 1, "status": {"replicas": 1, "readyReplicas": 1}}, None),
    ],
)
def test_the_limit_of_a_pool_that_lacks_replicas_is_its_max_unavailable(spec: dict[str, Any], limit: int | None):
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
