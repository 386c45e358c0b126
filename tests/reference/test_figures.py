"""Measured figures stand in one file, and pages quote it."""

import re
from pathlib import Path

import pytest

from benchmarks import figures
from tests.test_pages import ROOT

DOCS = ROOT / "docs"
QUOTING = [ROOT / "README.md", ROOT / "CHANGELOG.md", *(DOCS / f"{name}.md" for name in ("architecture", "scaling"))]
MEASURED = re.compile(r"\d (?:ms|us|MB|% of a core)\b")


def test_a_page_quotes_a_figure_with_its_date_and_commit_and_the_tables_of_a_case(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "| start | <!-- fleet/150000/cold_s -->STALE<!-- --> |\n"
        "| wait | <!-- planning/10000/pool, all outdated --><!-- --> |\n"
        "<!-- figures: changes/1000 -->\nSTALE\n<!-- end of figures -->\n"
    )
    text = figures.quoted(page)
    assert re.search(r"^\| start \| <!-- \S+ -->[\d.]+ s \| \d{4}-\d\d-\d\d, \w+, Python 3\S+<!-- --> \|$", text, re.M)
    assert re.search(r"outdated -->[\d.]+ ms \| ", text)
    assert "### One change in a set or pool: 1,000 members\n" in text
    assert "STALE" not in text
    page.write_text(text)
    assert figures.quoted(page) == text


@pytest.mark.parametrize("page", QUOTING, ids=lambda page: page.name)
def test_a_page_has_no_measured_figure_of_its_own(page: Path) -> None:
    assert MEASURED.findall(figures.FIGURE.sub("", page.read_text())) == []


def test_what_was_measured_on_a_replay_server_says_so() -> None:
    lines = [line for line in (ROOT / "README.md").read_text().splitlines() if "<!-- fleet/" in line]
    assert lines
    assert "replay server" in lines[0]
    assert "### A whole cluster in one process, on a replay server" in (DOCS / "performance.md").read_text()
