"""The dashboards are complete and query only existing metrics. tests/charts checks that each query has an answer."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.metrics_page import exported
from tests.monitoring.dashboards import Query, dashboards, queries
from tests.monitoring.queries import filled_in, metrics_in
from tests.promtool import find_or_skip

FILES = sorted(dashboards())
QUERIES = tuple(queries())


def test_there_is_a_dashboard_for_the_controller_and_one_for_the_fleet():
    assert FILES == ["controller.json", "fleet.json"]
    assert len({board["uid"] for board in dashboards().values()}) == 2
    assert len({board["title"] for board in dashboards().values()}) == 2


@pytest.mark.e2e
def test_every_query_is_promql(tmp_path: Path):
    promtool = find_or_skip()
    every = QUERIES
    rules = [{"record": f"query:{number}", "expr": filled_in(query.expr)} for number, query in enumerate(every)]
    (tmp_path / "queries.yaml").write_text(json.dumps({"groups": [{"name": "queries", "rules": rules}]}))
    done = subprocess.run(
        [promtool, "check", "rules", tmp_path / "queries.yaml"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"SUCCESS: {len(every)} rules found" in done.stdout


@pytest.mark.parametrize("query", QUERIES, ids=str)
def test_a_query_uses_only_exported_metrics(query: Query):
    names = {name for metric in exported().values() for name in metric.samples}
    assert metrics_in(query.expr) - names == set()


@pytest.mark.parametrize("query", QUERIES, ids=str)
def test_a_query_selects_only_the_chosen_job(query: Query):
    """Other controllers export metrics with the same names, such as workqueue_depth. A query must leave out their
    series.
    """
    selectors = query.expr.count("{") - query.expr.count("{{")
    assert selectors == query.expr.count('job=~"$job"') > 0


@pytest.mark.parametrize("name", FILES)
def test_every_variable_of_a_query_is_defined_in_its_dashboard(name: str):
    board = dashboards()[name]
    variables = {variable["name"] for variable in board["templating"]["list"]}
    text = json.dumps(board["panels"])
    for builtin in ("$__rate_interval", "${datasource}"):
        text = text.replace(builtin, "")
    assert "datasource" in variables
    used = {part.split('"')[0].strip("\\") for part in text.split("$")[1:]}
    assert used == variables - {"datasource"}


@pytest.mark.parametrize("name", FILES)
def test_panels_do_not_overlap_and_have_a_description(name: str):
    panels = dashboards()[name]["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert max(x for x, _ in cells) < 24
        assert not cells & taken, panel["title"]
        taken |= cells
        assert panel["type"] == "row" or panel["description"]


@pytest.mark.parametrize("name", FILES)
def test_a_dashboard_has_nothing_specific_to_one_installation(name: str):
    def sources(value: Any) -> set[str]:
        if isinstance(value, list):
            return set().union(*map(sources, value))
        if not isinstance(value, dict):
            return set()
        found = {value["uid"]} if value.get("type") == "prometheus" else set()
        return found.union(*map(sources, value.values()))

    board = dashboards()[name]
    assert "id" not in board
    assert sources(board) == {"${datasource}"}
