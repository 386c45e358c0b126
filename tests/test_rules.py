"""docs/rules.md is complete.

Each rule has a section, each section cites tests, sentences of the simulated worlds or conformance cases that exist,
and no other rule is cited.
"""

import re
from collections.abc import Collection
from pathlib import Path

import pytest

from conformance.catalogue import CASES
from tests.simulation import twins
from tests.simulation.judge import SENTENCES

ROOT = Path(__file__).resolve().parent.parent
RULES = (
    *("R1", "R2", "R3", "R4", "R4a", "R4b"),
    *(f"R{number}" for number in range(5, 18)),
    *(f"P{number}" for number in range(1, 34)),
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
    """The names of the test functions and of the sentences of the simulated world, and the IDs of the conformance
    cases.
    """
    sources = (path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    tests = {name for source in sources for name in re.findall(r"^ *(?:async )?def (test_\w+)\(", source, re.MULTILINE)}
    return tests | SENTENCES.keys() | {twins.NAME} | {case.id for case in CASES}


def unknown_citations(text: str) -> set[str]:
    """The rule numbers that the text cites, but that no rule has."""
    return set(CITATION.findall(text)) - set(RULES)


def test_every_rule_has_a_section_and_tests_that_exist() -> None:
    assert problems_of((ROOT / "docs" / "rules.md").read_text(), existing_tests()) == []


@pytest.mark.parametrize("folder", ["controller", "informers", "sandbox", "docs", "charts/vmherd/templates"])
def test_no_other_rule_is_cited(folder: str) -> None:
    paths = [path for path in (ROOT / folder).rglob("*") if path.suffix in {".py", ".md", ".yaml", ".tpl"}]
    assert paths
    unknown = {str(path.relative_to(ROOT)): found for path in paths if (found := unknown_citations(path.read_text()))}
    assert unknown == {}
