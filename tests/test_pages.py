"""The pages for developers: cited tests exist, and the index of the decisions is complete."""

import re
from pathlib import Path

from tests.pages.links import links_of
from tests.simulation.judge import SENTENCES
from tests.test_rules import existing_tests

ROOT = Path(__file__).resolve().parent.parent
DECISIONS = ROOT / "docs" / "decisions"
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LONGEST_DECISION, LONGEST_README = 40, 120

SECTIONS = ("## Context", "## Decision", "## Consequences")


def test_every_cited_test_exists() -> None:
    cited = {name for page in PAGES for name in re.findall(r"`(test_\w+)`", page.read_text())}
    assert len(cited) > 50
    assert cited - existing_tests() == set()


def test_each_guarantee_is_shown_and_each_sentence_of_the_judge_is_a_guarantee() -> None:
    text = (ROOT / "docs" / "guarantees.md").read_text().partition("\n## Limits")[0]
    guarantees = re.split(r"^\*\*Guarantee (\d+): ", text, flags=re.MULTILINE)[1:]
    numbers, contents = guarantees[::2], guarantees[1::2]
    assert numbers == [str(number) for number in range(1, len(numbers) + 1)]
    shown = [set(re.findall(r"`(\w+)`", each)) & existing_tests() for each in contents]
    assert [number for number, names in zip(numbers, shown, strict=True) if not names] == []
    assert set().union(*shown) >= SENTENCES.keys()


def test_every_decision_is_short_complete_and_in_the_index() -> None:
    pages = sorted(DECISIONS.glob("[0-9]*.md"))
    index = (DECISIONS / "README.md").read_text()
    assert [page.name for page in pages] == list(links_of(DECISIONS / "README.md"))
    for number, page in enumerate(pages, 1):
        text = page.read_text()
        title = text.splitlines()[0].removeprefix(f"# {number}. ")
        assert f"| [{number}]({page.name}) | {title} |" in index
        assert [line for line in text.splitlines() if line.startswith("## ")] == list(SECTIONS), page.name
        assert len(text.splitlines()) <= LONGEST_DECISION, page.name


def test_the_readme_is_read_in_a_short_time() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= LONGEST_README


def test_all_pages_install_the_controller_into_one_namespace() -> None:
    pages = [*PAGES, ROOT / "charts" / "vmherd" / "README.md"]
    commands = "\n".join(page.read_text().replace("\\\n", " ") for page in pages)
    found = re.findall(r"^\$ helm \w+ vmherd\b.*?--namespace (\S+)", commands, re.MULTILINE)
    assert len(found) > 4
    assert set(found) == {"vmherd-system", "team-a"}, "team-a is the example of a release for one team"
