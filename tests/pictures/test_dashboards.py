"""The pictures of the dashboards: each type of panel is drawn, and the pictures in docs/images have all panels."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.monitoring.dashboards import dashboards
from tools.pictures.dashboards.__main__ import IMAGES, main
from tools.pictures.dashboards.answers import Series
from tools.pictures.dashboards.page import lacking, page
from tools.pictures.dashboards.panels import DRAWN
from tools.pictures.dashboards.units import text_of, top_of

FLEET = dashboards()["fleet.json"]


def series(title: str, /, *values: float, **labels: str) -> Series:
    return Series(title, labels, tuple((float(number - len(values)), value) for number, value in enumerate(values)))


def drawn(title: str, *found: list[Series], board: dict[str, Any] = FLEET, marks: Any = ()) -> str:
    """The picture of a dashboard with only this panel."""
    [panel] = [each for each in board["panels"] if each["title"] == title and each["type"] != "row"][:1]
    text = page({**board, "panels": [panel]}, {panel["id"]: found}, seconds=60, marks=marks, note="a note")
    ElementTree.fromstring(text)
    return text


def words(picture: str) -> list[str]:
    return [text for text in re.findall(r">([^<>]+)</text>", picture) if text not in ("vmherd / Fleet", "a note")]


def test_every_type_of_panel_can_be_drawn() -> None:
    types = {panel["type"] for board in dashboards().values() for panel in board["panels"]}
    assert types == {*DRAWN, "row"}


def test_a_stat_shows_the_newest_value_in_the_colour_of_its_threshold() -> None:
    picture = drawn("VMs missing", [series("", 9, 3)])
    assert words(picture) == ["VMs missing", "3"]
    assert 'fill="#d9730d" text-anchor="middle" font-weight="600">3<' in picture
    assert "#2f7d32" in drawn("VMs missing", [series("", 0)])


def test_a_graph_has_a_line_and_a_name_for_each_series_and_a_mark_for_a_new_leader() -> None:
    found = [series("a/web", 1, 2, 3), series("a/<api>", 5, 5, 5)]
    picture = drawn("Not ready, by object", found, marks=[(-30, "New leader vmherd-1")])
    assert picture.count("<polyline") == 2
    assert {"a/web", "a/&lt;api&gt;", "▲ New leader vmherd-1", "now", "-0:30"} <= set(words(picture))
    assert picture.count("stroke-dasharray") == 1


def test_a_line_is_interrupted_where_values_lack() -> None:
    gap = Series("a", {}, ((-60, 1), (-59, 1), (-10, 1), (-9, 2)))
    assert drawn("Not ready, by object", [gap]).count("<polyline") == 2


def test_names_that_do_not_fit_are_counted() -> None:
    many = [series(f"namespace/an-object-with-a-long-name-{n}", 1, 1) for n in range(30)]
    shown = words(drawn("Not ready, by object", many))
    names = [text for text in shown if text.startswith("namespace/")]
    assert f"+{30 - len(names)}" in shown


def test_a_table_has_a_row_for_each_object_and_the_names_of_its_columns() -> None:
    labels = {"kind": "VirtualMachinePool", "namespace": "shop", "name": "web"}
    columns = [[series("", value, **labels)] for value in (3, 4, 2, 1)]
    assert words(drawn("Replicas", *columns, board=only_tables())) == [
        *("Replicas", "Kind", "VirtualMachinePool", "namespace", "shop", "name", "web"),
        *("Desired", "3", "Current", "4", "Ready", "2", "Current template", "1"),
    ]


def only_tables() -> dict[str, Any]:
    return {**FLEET, "panels": [panel for panel in FLEET["panels"] if panel["type"] == "table"]}


def test_a_bar_has_the_length_of_its_share() -> None:
    picture = drawn("Rollout progress", [series("shop/web", 0.25), series("shop/api", 1)])
    assert words(picture) == ["Rollout progress", "shop/web", "25%", "shop/api", "100%"]
    widths = [int(width) for width in re.findall(r'width="(\d+)" height="14" fill="#(?:d9730d|2f7d32)"', picture)]
    assert widths[0] * 4 == pytest.approx(widths[1], abs=4)


def test_a_cell_of_a_heatmap_is_the_difference_between_two_buckets() -> None:
    buckets = [series("", 2, 2, le="5"), series("", 2, 6, le="10"), series("", 2, 6, le="+Inf")]
    picture = drawn("Time to ready, all VMs", buckets)
    assert {"≤ 5 s", "≤ 10 s"} <= set(words(picture))
    assert picture.count('fill="#0b559f"') == 1, "the four VMs that took 10 s"


def test_a_panel_without_an_answer_says_so() -> None:
    assert words(drawn("Held", [])) == ["Held", "No data"]


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (12, "short", "12"),
        (0.451, "percentunit", "45.1%"),
        (0, "s", "0 s"),
        (0.035, "s", "35 ms"),
        (0.00002, "s", "20 µs"),
        (75, "s", "75 s"),
        (600, "s", "10 min"),
        (7200, "s", "2 h"),
        (64 * 2**20, "bytes", "64 MiB"),
        (2.5, "reqps", "2.5 req/s"),
    ],
)
def test_a_number_has_its_unit(value: float, unit: str, text: str) -> None:
    assert text_of(value, unit) == text


@pytest.mark.parametrize(
    ("most", "unit", "top"),
    [(7, "short", 10), (0.7, "percentunit", 1), (58, "s", 60), (3, "s", 5), (60 * 2**20, "bytes", 100 * 2**20)],
)
def test_an_axis_ends_with_a_round_number(most: float, unit: str, top: float) -> None:
    assert top_of(most, unit) == top


@pytest.mark.parametrize("name", sorted(dashboards()))
def test_the_picture_in_the_docs_has_every_panel_and_says_how_it_was_made(name: str) -> None:
    text = (IMAGES / f"dashboard-{name.removesuffix('.json')}.svg").read_text()
    ElementTree.fromstring(text)
    assert lacking(text, dashboards()[name]) == []
    assert "Drawn from the answers of a Prometheus, not by Grafana" in text
    assert 'font-weight="600" fill="#24292e">No data' not in text


def test_a_picture_without_a_new_panel_is_found() -> None:
    assert lacking("<text>Held</text>", {"panels": [{"title": "Held"}, {"title": "New"}]}) == ["New"]


def test_a_wrong_argument_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--fast"]) == 2
    assert "expected --check" in capsys.readouterr().err
    assert main(["--check"]) == 0
