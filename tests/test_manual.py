"""The operators' manual is complete: it has every flag, every Event and every annotation that a user may set."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from controller.commands import expose
from controller.config.settings import GROUPS, OPTIONS
from controller.kubevirt import annotations as markers

ROOT = Path(__file__).parent.parent
MANUAL = (ROOT / "docs" / "operating.md").read_text()
REASON = re.compile(
    r'"((?:Successful|Failed|Invalid|Protected|ScaleIn|Rollout|Healing|Takeover)[A-Z][A-Za-z]+)"|"(RolloutStalled|HealingHeld)"'
)


def reasons() -> set[str]:
    sources = "\n".join(path.read_text() for path in (ROOT / "controller").rglob("*.py"))
    return {first or second for first, second in REASON.findall(sources)}


@pytest.mark.parametrize("option", OPTIONS.values(), ids=lambda option: option.flag)
def test_every_flag_is_in_the_manual_with_its_help_text(option):
    default = option.unset or f"`{option.default}`"
    assert f"| `{option.flag}`, `{option.variable}` | {default} | {option.help} |" in MANUAL


def test_the_manual_has_the_flags_and_headings_of_help_in_the_same_order():
    section = MANUAL.partition("\n## Flags\n")[2]
    rows = re.findall(r"^\| `(--[a-z-]+)`, `VMHERD_|^### (.+)", section, re.MULTILINE)
    wanted = [[("", title), *((option.flag, "") for option in options)] for title, options in GROUPS.items()]
    assert rows == [row for rows_of_group in wanted for row in rows_of_group]


def test_every_flag_of_a_service_is_in_the_manual():
    section = MANUAL.partition("\n## A Service in front of VMs\n")[2].partition("\n## ")[0]
    documented = set(re.findall(r"`(--[a-z-]+)`", section))
    options = [option for group in expose.GROUPS.values() for option in group]
    assert documented == {option.flag for option in options if option not in OPTIONS.values()} | {"--dry-run"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_manual_says_how_to_enable_completion(shell):
    assert f"_VMHERD_COMPLETE={shell}_source vmherd" in MANUAL


def test_every_reason_is_in_the_manual():
    assert len(reasons()) > 12
    assert {reason for reason in reasons() if f"`{reason}`" not in MANUAL} == set()


def test_every_annotation_is_in_the_manual():
    names = {value for value in vars(markers).values() if isinstance(value, str) and value.startswith("vmherd.dev/")}
    assert len(names) > 8
    assert {name for name in names if name not in MANUAL} == set()


def test_every_link_has_an_existing_target():
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
