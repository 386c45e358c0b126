"""docs/rules.md is complete.

Each rule has a section, each section cites tests, sentences of the simulated worlds or conformance cases that exist,
and no other rule is cited.
"""

import re
from collections.abc import Collection
from pathlib import Path

import pytest

from conformance.catalogue import CASES
from tests.simulation.judge import SENTENCES

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "rules.md"
RULES = (
    *("R1", "R2", "R3", "R4", "R4a"),
    *(f"R{number}" for number in range(5, 18)),
    *(f"P{number}" for number in range(1, 32)),
    *(f"G{number}" for number in range(1, 10)),
)
CITED_AT_MOST = 8
CITATION = re.compile(r"\b[RPG][1-9]\d?[a-z]?\b")

SECTION = re.compile(r"^### (\S+) [^\n]+\n(.*?)(?=^##|\Z)", re.MULTILINE | re.DOTALL)
CITED_TESTS = re.compile(r"^Tests: (.*?)(?=\n\n|\Z)", re.MULTILINE | re.DOTALL)


def problems_of(page: str, tests: Collection[str]) -> list[str]:
    """The problems of the page, one sentence each. `tests` are the names that a section may cite."""
    sections = SECTION.findall(page)
    names = [name for name, _ in sections]
    found = [f"{rule} has no section" for rule in RULES if rule not in names]
    found += [f"{name} is no rule" for name in names if name not in RULES]
    found += [f"{name} has two sections" for name in dict.fromkeys(names) if names.count(name) > 1]
    if not found and tuple(names) != RULES:
        found.append("the sections are not in order")
    for name, text in sections:
        cited = [test for line in CITED_TESTS.findall(text) for test in re.findall(r"`([^`]+)`", line)]
        if not cited:
            found.append(f"{name} cites no test")
        if len(cited) > CITED_AT_MOST:
            found.append(f"{name} cites more than {CITED_AT_MOST} tests")
        found += [f"{name} cites {test}, which does not exist" for test in cited if test not in tests]
    return found


def existing_tests() -> set[str]:
    """The names of the test functions and of the judge's sentences, and the IDs of the conformance cases."""
    sources = (path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    tests = {name for source in sources for name in re.findall(r"^ *(?:async )?def (test_\w+)\(", source, re.MULTILINE)}
    return tests | SENTENCES.keys() | {case.id for case in CASES}


def unknown_citations(text: str) -> set[str]:
    """The rule numbers that the text cites, but that no rule has."""
    return set(CITATION.findall(text)) - set(RULES)


def test_every_rule_has_a_section_and_tests_that_exist() -> None:
    assert problems_of(PAGE.read_text(), existing_tests()) == []


@pytest.mark.parametrize("folder", ["controller", "informers", "sandbox", "docs", "charts/vmherd/templates"])
def test_no_other_rule_is_cited(folder: str) -> None:
    paths = [path for path in (ROOT / folder).rglob("*") if path.suffix in {".py", ".md", ".yaml", ".tpl"}]
    assert paths
    unknown = {str(path.relative_to(ROOT)): found for path in paths if (found := unknown_citations(path.read_text()))}
    assert unknown == {}


def complete_page() -> str:
    return "# Rules\n\n" + "\n".join(f"### {rule} Title\n\nText.\n\nTests: `test_one`\n" for rule in RULES)


def test_a_complete_page_has_no_problems() -> None:
    assert problems_of(complete_page(), {"test_one"}) == []


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("### P7 Title", "### Title P7", "P7 has no section"),
        ("### P7 Title", "### P7a Title", "P7a is no rule"),
        ("### P7 Title", "### P6 Title", "P6 has two sections"),
        ("### R1 Title", "### R2 Title\n\n### R1 Title", "R2 has two sections"),
        ("### G9 Title\n\nText.\n\nTests: `test_one`", "### G9 Title\n\nText.", "G9 cites no test"),
        ("Tests: `test_one`", "Tests: `test_two`", "R1 cites test_two, which does not exist"),
        ("Tests: `test_one`", "Tests: `set-nmaes`", "R1 cites set-nmaes, which does not exist"),
        ("Tests: `test_one`", "Tests: `test_one`,\n`test_two`", "R1 cites test_two, which does not exist"),
        ("Tests: `test_one`", "Tests: " + "`test_one`, " * 9, "R1 cites more than 8 tests"),
        ("Tests: `test_one`", "As `test_one` shows.", "R1 cites no test"),
    ],
)
def test_a_problem_is_found(old: str, new: str, problem: str) -> None:
    page = complete_page()
    assert old in page
    assert problem in problems_of(page.replace(old, new, 1), {"test_one"})


def test_sections_out_of_order_are_found() -> None:
    page = complete_page().replace("### R1 ", "### X ").replace("### R2 ", "### R1 ").replace("### X ", "### R2 ")
    assert problems_of(page, {"test_one"}) == ["the sections are not in order"]


def test_a_number_out_of_range_is_found() -> None:
    assert unknown_citations("P99, R4b and G10; P22, R16 and G9") == {"P99", "R4b", "G10"}
