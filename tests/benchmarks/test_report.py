"""The soak: its samples, its report, and the errors that it finds in logs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from benchmarks.soak import report
from benchmarks.soak.__main__ import errors_in
from benchmarks.soak.faults import Fault, FaultSchedule
from benchmarks.soak.plots import Mark
from benchmarks.soak.sampling import MEASURES, Page, Samples, Scrape
from controller.metrics.registry import Metrics
from controller.server.http import describe_memory
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
    found.marks = [Mark(60.0, "API server restarts"), Mark(120.0, "API server restarts")]
    found.operations = {"scale": 3, "update": 2}
    found.verdicts = report.verdicts_of(found.samples)
    return found


def test_each_measure_finds_its_value_on_the_pages_of_the_controller():
    before, after = scrape(), scrape(requests=20)
    found = Samples()
    found.add(15.0, after, (5.0, before))
    values = {name: numbers[0] for name, numbers in found.values.items()}
    assert values.keys() == MEASURES.keys()
    assert values["tasks"] == 2
    assert values["requests"] == 2
    assert values["depth"] == 4
    assert values["cached"] == 12
    assert values["lag"] == pytest.approx(30)
    assert values["series"] > 100
    assert values["blocks"] > 1000
    assert all(values[name] > 0 for name in ("rss", "fds"))


def test_a_figure_that_grows_is_a_problem_with_its_name():
    assert result().all_problems == []
    found = result(leak=10).all_problems
    assert any(problem.startswith("Resident memory grows: 245 to 445") for problem in found)


def test_the_json_file_has_all_samples(tmp_path: Path):
    path = tmp_path / "new" / "soak.json"
    report.write_json(result(), path)
    written = json.loads(path.read_text())
    assert written["samples"]["values"].keys() == MEASURES.keys()
    assert len(written["samples"]["times_s"]) == 40
    assert report.read_json(path) == result()


def test_the_figures_replace_the_old_figures_of_the_page(tmp_path: Path):
    page, image = tmp_path / "soak.md", tmp_path / "images" / "soak.svg"
    page.write_text(f"# Soak\n\n{report.BEGIN}\nold\n{report.END}\n\nThe end.\n")
    report.write_docs(result(), page=page, image=image)
    text = page.read_text()
    assert "old" not in text
    assert "| Resident memory (MiB) | 100 | 100 | 100 | 100 | +0 | yes |" in text
    assert "2 shared cores, seed 7" in text
    assert "5 operations (3 scale, 2 update)" in text
    assert "2 faults (2 times: API server restarts)" in text
    assert text.endswith("The end.\n")
    assert image.read_text().startswith("<svg")
    report.write_docs(result(), page=page, image=image)
    assert page.read_text() == text


def test_a_page_without_a_place_for_the_figures_is_not_changed(tmp_path: Path):
    page, image = tmp_path / "soak.md", tmp_path / "soak.svg"
    page.write_text("# Soak\n")
    with pytest.raises(ValueError, match="no place"):
        report.write_docs(result(), page=page, image=image)
    assert page.read_text() == "# Soak\n"
    assert not image.exists()


def test_each_different_error_of_the_log_is_named_once():
    lines = [
        {"level": "info", "msg": "working"},
        {"level": "error", "msg": "a pass failed", "error": "boom"},
        {"level": "error", "msg": "a pass failed", "error": "boom"},
        {"level": "warning", "msg": "waiting"},
    ]
    log = "\n".join(["no JSON", *map(json.dumps, lines)])
    assert errors_in(log) == ["log: a pass failed boom"]


def test_faults_come_in_turn_one_in_each_interval():
    injected: list[str] = []
    faults = [Fault(name, lambda name=name: injected.append(name)) for name in ("a", "b")]
    schedule = FaultSchedule(faults, interval_s=10)
    for elapsed_s in (5, 10, 11, 21, 35):
        schedule.run_due(elapsed_s)
    assert injected == ["a", "b", "a"]
    assert [mark.time_s for mark in schedule.marks] == [10, 21, 35]
