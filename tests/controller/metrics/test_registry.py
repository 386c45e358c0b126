import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest
from prometheus_client import CollectorRegistry

from controller.events.recorder import DROP_REASONS
from controller.kinds import KINDS
from controller.metrics.registry import ACTION_OUTCOMES, RESULTS, Metrics
from controller.runtime.actions import Action, Outcome, SuccessorRefused, label_of
from tests.fakes.virtual_time import Clock
from tests.metrics_page import VMIS, HangingQueue, exercise, samples_of, talkative
from tests.promtool import find_or_skip
from tools.release.project import ROOT


class RegistrySetup:
    def __init__(self) -> None:
        self.clock = Clock()
        self.metrics = Metrics(CollectorRegistry(), version="1.2.3", revision="abc", clock=self.clock)

    def scrape(self) -> dict[str, float]:
        """All samples of the page, by `name{label="value",...}`. The labels are sorted by name."""
        samples = {}
        for sample in samples_of(self.metrics):
            labels = ",".join(f'{key}="{value}"' for key, value in sorted(sample.labels.items()))
            samples[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
        return samples


@pytest.fixture
def setup() -> RegistrySetup:
    return RegistrySetup()


def requests(metrics: Metrics) -> None:
    for code in ("200", "200", "409"):
        metrics.request_finished(verb="POST", host="api:6443", code=code, seconds=0.3)


def busy_workers(metrics: Metrics) -> None:
    metrics.workers("replicaset", most=10)
    for change in (1, 1, -1):
        metrics.worker_busy("replicaset", change=change)


def hanging_worker(metrics: Metrics) -> None:
    metrics.show_queue(HangingQueue())


def first_list(metrics: Metrics) -> None:
    metrics.listed(VMIS, reason="start")


OF_SETS = '{controller="replicaset"}'
OF_QUEUE = '{controller="replicaset",name="replicaset"}'
REPORTS: dict[Callable[[Metrics], None], dict[str, float]] = {
    requests: {
        'rest_client_requests_total{code="200",host="api:6443",method="POST"}': 2,
        'rest_client_requests_total{code="409",host="api:6443",method="POST"}': 1,
        'rest_client_request_duration_seconds_count{host="api:6443",verb="POST"}': 3,
        'rest_client_request_duration_seconds_bucket{host="api:6443",le="0.25",verb="POST"}': 0,
        'rest_client_request_duration_seconds_bucket{host="api:6443",le="0.5",verb="POST"}': 3,
    },
    exercise: {
        f"workqueue_depth{OF_QUEUE}": 4,
        f"workqueue_adds_total{OF_QUEUE}": 1,
        f"workqueue_retries_total{OF_QUEUE}": 1,
        f"workqueue_queue_duration_seconds_sum{OF_QUEUE}": 0.01,
        f"workqueue_work_duration_seconds_sum{OF_QUEUE}": 0.2,
    },
    hanging_worker: {
        f"workqueue_unfinished_work_seconds{OF_QUEUE}": 60,
        f"workqueue_longest_running_processor_seconds{OF_QUEUE}": 60,
        f"workqueue_retries_total{OF_QUEUE}": 0,
        **{f'vmherd_events_dropped_total{{reason="{reason}"}}': 0 for reason in DROP_REASONS},
    },
    busy_workers: {
        f"controller_runtime_max_concurrent_reconciles{OF_SETS}": 10,
        f"controller_runtime_active_workers{OF_SETS}": 1,
        'controller_runtime_reconcile_total{controller="replicaset",result="error"}': 0,
        f"controller_runtime_reconcile_panics_total{OF_SETS}": 0,
        f"vmherd_stale_sync_skips_total{OF_SETS}": 0,
        'vmherd_actions_total{action="create",controller="replicaset",outcome="rejected"}': 0,
    },
    first_list: {
        f'vmherd_lists_total{{reason="start",resource="{VMIS}"}}': 1,
        f'vmherd_lists_total{{reason="expired",resource="{VMIS}"}}': 0,
        f'vmherd_watch_restarts_total{{reason="silent",resource="{VMIS}"}}': 0,
        f'vmherd_decode_errors_total{{resource="{VMIS}"}}': 0,
    },
}


@pytest.mark.parametrize("report", REPORTS, ids=lambda report: report.__name__)
def test_a_report_has_the_names_of_client_go_and_controller_runtime_and_counters_start_at_zero(
    report, setup: RegistrySetup
):
    report(setup.metrics)
    setup.clock.now = 150
    page = setup.scrape()
    assert {name: page.get(name) for name in REPORTS[report]} == REPORTS[report]


@pytest.mark.parametrize(("result", "errors"), [("success", 0), ("requeue_after", 0), ("error", 1)])
def test_a_pass_is_counted_by_its_result(result: str, errors: int, setup: RegistrySetup):
    setup.metrics.workers("replicaset", most=10)
    setup.metrics.reconciled("replicaset", result=result, seconds=0.2)
    page = setup.scrape()
    counted = {r: page[f'controller_runtime_reconcile_total{{controller="replicaset",result="{r}"}}'] for r in RESULTS}
    assert counted == {r: float(r == result) for r in RESULTS}
    assert page['controller_runtime_reconcile_errors_total{controller="replicaset"}'] == errors
    assert page['controller_runtime_reconcile_time_seconds_sum{controller="replicaset"}'] == 0.2


def test_every_action_and_outcome_of_the_planning_vocabulary_has_a_label(setup: RegistrySetup):
    for action in get_args(Action):
        for outcome in get_args(Outcome):
            setup.metrics.acted("replicaset", action=label_of(action), outcome=label_of(outcome))
    counted = {name for name, value in setup.scrape().items() if name.startswith("vmherd_actions_total") and value == 1}
    assert len(counted) == len(get_args(Action)) * len(get_args(Outcome))
    for action, outcomes in ACTION_OUTCOMES.items():
        for outcome in outcomes:
            assert f'vmherd_actions_total{{action="{action}",controller="replicaset",outcome="{outcome}"}}' in counted
    assert ACTION_OUTCOMES.keys() == set(map(label_of, get_args(Action)))
    [row] = [
        each
        for each in (ROOT / "docs" / "metrics.md").read_text().splitlines()
        if each.startswith("| `vmherd_actions_total`")
    ]
    named = map(label_of, (*get_args(Action), *get_args(Outcome), SuccessorRefused))
    assert [each for each in (*named, "waiting", "would") if each not in re.split(r"[ ,.;]+", row)] == []


def test_the_age_of_unsettled_writes_is_asked_for_at_each_scrape(setup: RegistrySetup):
    ages = iter([5.0, 7.0])
    setup.metrics.show_unsettled("replicaset", lambda: next(ages))
    name = 'vmherd_unsettled_seconds{controller="replicaset"}'
    assert [setup.scrape()[name], setup.scrape()[name]] == [5, 7]


def test_the_lease_is_one_for_its_holder_and_zero_for_a_standby(setup: RegistrySetup):
    setup.metrics.leading("vmherd", master=False)
    assert setup.scrape()['leader_election_master_status{name="vmherd"}'] == 0
    setup.metrics.leading("vmherd", master=True)
    assert setup.scrape()['leader_election_master_status{name="vmherd"}'] == 1


def test_the_worst_lag_counts_from_the_last_scrape(setup: RegistrySetup):
    for lag in (0.002, 0.3, 0.01):
        setup.metrics.loop_lagged(lag)
    page = setup.scrape()
    assert page["vmherd_event_loop_lag_max_seconds"] == 0.3
    assert page["vmherd_event_loop_lag_seconds_count"] == 3
    assert setup.scrape()["vmherd_event_loop_lag_max_seconds"] == 0


def test_no_counter_has_a_created_series(setup: RegistrySetup):
    exercise(setup.metrics)
    assert not [name for name in setup.scrape() if name.partition("{")[0].endswith("_created")]


@pytest.fixture(scope="module")
def promtool() -> Path:
    return find_or_skip()


def test_promtool_reports_no_problem(promtool: Path, setup: RegistrySetup):
    exercise(setup.metrics, figures=lambda: tuple(talkative(kind.kind) for kind in KINDS))
    page, _ = setup.metrics.page().render()
    verdict = subprocess.run([promtool, "check", "metrics"], input=page, capture_output=True, check=False, timeout=60)
    assert (verdict.returncode, verdict.stdout.decode(), verdict.stderr.decode()) == (0, "", "")
