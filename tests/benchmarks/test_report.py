"""The soak: its samples, its report, and the errors that it finds in logs."""

import json
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from benchmarks.soak import report
from benchmarks.soak.__main__ import errors_in, inject_due
from benchmarks.soak.sampling import MEASURES, Page, Samples, Scrape
from controller.metrics.registry import Metrics
from controller.server.debug import describe_memory
from tests.metrics_page import exercise

TASKS = "informer\n    run (informer.py:1)\nserver\n    serve (http.py:2)\n"


def scrape(*, requests: int = 0) -> Scrape:
    metrics = Metrics(CollectorRegistry())
    exercise(metrics)
    for _ in range(requests):
        metrics.request_finished(verb="GET", host="api:6443", code="200", seconds=0.003)
    return Scrape(Page(metrics.page().render()[0].decode(), TASKS, describe_memory()))


def samples(count: int = 40, *, leak: float = 0.0) -> Samples:
    found = Samples()
    for number in range(count):
        found.times_s.append(5.0 * number)
        for values in found.values.values():
            values.append(100 + leak * number)
    return found


def result(*, leak: float = 0.0) -> report.Result:
    found = report.Result(minutes=3, machine="2 shared cores", seed=7, samples=samples(leak=leak))
    found.faults = ["API server restarts", "API server restarts"]
    found.operations = {"scale": 3, "update": 2}
    found.verdicts = report.verdicts_of(found.samples)
    return found


def test_each_measure_finds_its_value_on_the_pages_of_the_controller():
    before, after = scrape(), scrape(requests=20)
    found = Samples()
    found.add(15.0, after, (5.0, before))
    values = {name: numbers[0] for name, numbers in found.values.items()}
    assert values.keys() == MEASURES.keys()
    assert (values["tasks"], values["requests"], values["depth"]) == (2, 2, 4)
    assert values["cached"] == 12
    assert values["lag"] == pytest.approx(30)
    assert values["series"] > 100
    assert values["blocks"] > 1000
    assert all(values[name] > 0 for name in ("rss", "fds"))


def test_a_figure_that_grows_is_a_problem_with_its_name():
    assert result().all_problems == []
    found = result(leak=10).all_problems
    assert any(problem.startswith("Resident memory grows: 245 to 445") for problem in found)


def test_the_figures_replace_the_old_figures_of_the_page(tmp_path: Path):
    page = tmp_path / "soak.md"
    begin, end = (f"<!-- {word}: figures of `make soak` -->" for word in ("begin", "end"))
    page.write_text(f"# Soak\n\n{begin}\nold\n{end}\n\nThe end.\n")
    report.write_docs(result(), page=page)
    text = page.read_text()
    assert "old" not in text
    assert "| Resident memory (MiB) | 100 | 100 | 100 | 100 | +0 | ████████████████████████ | yes |" in text
    assert "2 shared cores, seed 7" in text
    assert "5 operations (3 scale, 2 update)" in text
    assert "2 faults (2 times: API server restarts)" in text
    assert text.endswith("The end.\n")
    report.write_docs(result(), page=page)
    assert page.read_text() == text


def test_each_different_error_of_the_log_is_named_once():
    lines = [
        {"level": "info", "msg": "working"},
        {"level": "error", "msg": "a pass failed", "error": "boom"},
        {"level": "error", "msg": "a pass failed", "error": "boom"},
        {"level": "warning", "msg": "waiting"},
    ]
    assert errors_in("\n".join(["no JSON", *map(json.dumps, lines)])) == ["log: a pass failed boom"]


def test_faults_come_in_turn_one_in_each_interval():
    injected: list[str] = []
    noted: list[str] = []
    faults = {name: lambda name=name: injected.append(name) for name in ("a", "b")}
    for elapsed_s in (5, 10, 11, 21, 35):
        inject_due(faults, elapsed_s, noted, interval_s=10)
    assert injected == noted == ["a", "b", "a"]
