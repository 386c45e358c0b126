"""The pages agree with the sources: cited tests, flags and versions. The index of the decisions is complete."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

from controller.config.settings import GROUPS, OPTIONS
from controller.preflight.versions import FIRST_WITH_BOTH_LOOPS, OLDEST
from sandbox.releases import KUBERNETES
from tests.pages.links import links_of
from tests.simulation.judge import SENTENCES
from tests.test_rules import existing_tests
from tools.chart.helm import MAJORS, pinned

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


FLAGS = (ROOT / "docs" / "reference" / "flags.md").read_text()


@pytest.mark.parametrize("option", OPTIONS.values(), ids=lambda option: option.flag)
def test_every_flag_is_in_the_reference_with_its_help_text(option):
    default = option.unset or f"`{option.default}`"
    assert f"| `{option.flag}`, `{option.variable}` | {default} | {option.help} |" in FLAGS


def test_the_reference_has_the_flags_and_headings_of_help_in_the_same_order():
    section = FLAGS.partition("\n## vmherd run\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(--[a-z-]+)`, `VMHERD_|^### vmherd run: (.+)", section, re.MULTILINE)
    wanted = [[("", lower(title)), *((option.flag, "") for option in options)] for title, options in GROUPS.items()]
    assert rows == [row for rows_of_group in wanted for row in rows_of_group]


def lower(title: str) -> str:
    return title[0].lower() + title[1:]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_manual_says_how_to_enable_completion(shell):
    assert f"_VMHERD_COMPLETE={shell}_source vmherd" in (ROOT / "docs" / "operating.md").read_text()


SUPPORT = (ROOT / "docs" / "support.md").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def state_of(version: str, section: str) -> str:
    """The state of a version in the table of a section, or "" if the table has no such row."""
    rows = SUPPORT.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    found = re.search(rf"^\| {re.escape(version)} \| (\w[\w ]*)", rows, re.MULTILINE)
    return found[1].strip() if found else ""


OLDEST_KUBEVIRT, BOTH_LOOPS = (".".join(map(str, version)) for version in (OLDEST, FIRST_WITH_BOTH_LOOPS))
HELM = " and ".join(pinned(major).removeprefix("v").rpartition(".")[0] for major in MAJORS)


@pytest.mark.parametrize(
    ("section", "version", "state"),
    [
        ("Kubernetes", KUBERNETES, "tested"),
        ("KubeVirt", f"{OLDEST_KUBEVIRT} to 1.8", "imitated"),
        ("KubeVirt", f"older than {BOTH_LOOPS}", "not supported"),
        ("Python", PROJECT["requires-python"].removeprefix(">="), "tested"),
        ("Tools", f"Helm {HELM}", "tested"),
    ],
)
def test_the_page_has_the_state_of_the_versions_in_the_sources(section: str, version: str, state: str) -> None:
    assert state_of(version, section) == state


def test_the_older_kubernetes_is_that_of_its_go_module() -> None:
    for module in (ROOT / "tools" / "kube").glob("v*/go.mod"):
        pinned = re.search(r"k8s\.io/kubernetes v(\S+)", module.read_text())
        assert pinned is not None
        assert state_of(pinned[1], "Kubernetes") == "tested"
        assert f"KUBERNETES={module.parent.name[1:]}" in SUPPORT
        assert f'"{module.parent.name[1:]}"' in (ROOT / ".github" / "workflows" / "ci.yml").read_text()


def test_the_oldest_kubernetes_is_that_of_the_chart() -> None:
    chart = yaml.safe_load((ROOT / "charts" / "vmherd" / "Chart.yaml").read_text())
    oldest = chart["kubeVersion"].removeprefix(">=").removesuffix(".0-0")
    assert f"vmherd needs Kubernetes {oldest} or newer" in SUPPORT


def test_the_upgrade_notes_have_the_current_version() -> None:
    assert f"\n### {PROJECT['version']}\n" in (ROOT / "docs" / "upgrading.md").read_text()
