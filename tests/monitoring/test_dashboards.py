"""The dashboards are complete and query only existing metrics. tests/charts checks that each query has an answer."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.gomodules import CHECKS, check_or_skip
from tests.metrics_page import exported
from tests.monitoring.queries import DASHBOARDS, Query, dashboards, filled_in, metrics_in, queries
from tests.programs import finished
from tests.promtool import find_or_skip

FILES = sorted(dashboards())
QUERIES = tuple(queries())
BUILTIN = {"__rate_interval", "__url_time_range", "__field", "__data"}
"""The variables that Grafana defines."""


def test_there_is_a_dashboard_for_the_controller_and_one_for_the_fleet():
    assert FILES == ["controller.json", "fleet.json"]
    assert len({board["uid"] for board in dashboards().values()}) == 2
    assert len({board["title"] for board in dashboards().values()}) == 2


@pytest.mark.e2e
def test_every_query_is_promql(tmp_path: Path):
    rules = [{"record": f"query:{number}", "expr": filled_in(query.expr)} for number, query in enumerate(QUERIES)]
    (tmp_path / "queries.yaml").write_text(json.dumps({"groups": [{"name": "queries", "rules": rules}]}))
    done = finished([find_or_skip(), "check", "rules", tmp_path / "queries.yaml"])
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"SUCCESS: {len(QUERIES)} rules found" in done.stdout


@pytest.mark.e2e
@pytest.mark.timeout(600)
def test_grafanas_schema_knows_every_field_and_finds_a_mistake(tmp_path: Path):
    broken = tmp_path / "broken.json"
    broken.write_text(json.dumps(dashboards()["fleet.json"] | {"pannels": []}))
    command = [check_or_skip("dashboards", CHECKS.with_name("dashboards")), *DASHBOARDS.glob("*.json"), broken]
    done = finished(command)
    assert (done.returncode, done.stdout) == (0, "Dashboard: unexpected field 'pannels'\n")


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
    used = set(re.findall(r"\$\{?(\w+)", json.dumps([board["panels"], board["annotations"]])))
    assert {each for each in used if not each.startswith("__")} == variables
    assert {each for each in used if each.startswith("__")} <= BUILTIN


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


@pytest.mark.parametrize("name", FILES)
def test_a_change_of_the_leader_is_an_annotation(name: str):
    [annotation] = dashboards()[name]["annotations"]["list"]
    assert annotation["enable"]
    assert "leader_election_master_status" in annotation["expr"]


def links() -> Iterator[tuple[dict[str, Any], str]]:
    """Each data link of a panel, with its panel."""
    for board in dashboards().values():
        for panel in board["panels"]:
            config = panel.get("fieldConfig", {"defaults": {}, "overrides": []})
            properties = [each for override in config["overrides"] for each in override["properties"]]
            found = [each["value"] for each in properties if each["id"] == "links"]
            for link in [*config["defaults"].get("links", ()), *(link for value in found for link in value)]:
                yield panel, link["url"]


def test_panels_with_objects_lead_to_the_dashboard_of_one_object():
    titles = {panel["title"] for panel, _ in links()}
    assert titles >= {"Held", "Rollout progress", "Not ready, by object", "Unavailable, as a share of the limit"}


@pytest.mark.parametrize("link", tuple(links()), ids=lambda link: link[0]["title"])
def test_a_data_link_sets_variables_that_exist_from_labels_that_the_query_keeps(link: tuple[dict[str, Any], str]):
    panel, url = link
    board = dashboards()["fleet.json"]
    assert url.startswith(f"/d/{board['uid']}?")
    variables = {variable["name"] for variable in board["templating"]["list"]}
    assert {*re.findall(r"&var-(\w+)=", url), *re.findall(r"\$\{(\w+):queryparam\}", url)} <= variables
    labels = set(re.findall(r"\$\{__(?:field\.labels|data\.fields)\.(\w+)\}", url))
    assert {"namespace", "name"} <= labels
    for target in panel["targets"]:
        kept = [set(each.split(", ")) for each in re.findall(r" by \(([^)]*)\)", target["expr"])]
        assert all(labels <= each for each in kept)
    renamed = [each["options"].get("renameByName", {}) for each in panel.get("transformations", ())]
    assert not [each for each in renamed if labels & each.keys()], "a link finds a column by its name"
