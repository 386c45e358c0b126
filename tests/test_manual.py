"""The manual and the page of all flags agree with the program."""

import re
from pathlib import Path

import pytest

from controller.config.settings import GROUPS, OPTIONS

ROOT = Path(__file__).parent.parent
MANUAL = (ROOT / "docs" / "operating.md").read_text()
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
    assert f"_VMHERD_COMPLETE={shell}_source vmherd" in MANUAL
