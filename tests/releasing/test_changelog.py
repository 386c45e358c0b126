"""The release notes and the changes for Artifact Hub come from CHANGELOG.md."""

from tools.release import changelog
from tools.release.project import ROOT

TEXT = """# Changelog

## [Unreleased]

## [1.2.0] - 2026-11-22

### Added

- **Sets**: `a` and [bees](docs/b.md). More about
  them.
- A thing

### Fixed in passing

- A `fault`. status is right

### Security

- A hole

## [1.1.0]

- Old

[1.2.0]: https://example.com
"""


def test_a_section_ends_at_the_next_version() -> None:
    found = changelog.section(TEXT, "1.2.0")
    assert found is not None
    assert found.startswith("### Added\n")
    assert found.endswith("- A hole")
    assert changelog.section(TEXT, "1.1.0") == "- Old"


def test_a_missing_or_empty_section_is_none() -> None:
    assert changelog.section(TEXT, "1.2") is None
    assert changelog.section(TEXT, "Unreleased") is None


def test_each_item_is_a_change_with_its_kind_and_its_first_sentence() -> None:
    assert list(changelog.changes(changelog.section(TEXT, "1.2.0") or "")) == [
        ("added", "Sets: a and bees."),
        ("added", "A thing"),
        ("fixed", "A fault."),
        ("security", "A hole"),
    ]


def test_a_long_sentence_is_cut_at_a_word() -> None:
    found = changelog.first_sentence("word " * 100)
    assert found.endswith("word ...")
    assert len(found) <= changelog.LONGEST + 4


def test_every_item_of_the_real_changelog_is_a_change() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    found = list(changelog.changes(text.partition("\n## ")[2]))
    assert len(found) == text.count("\n- ")
    assert all(kind in changelog.KINDS and 3 < len(said) < 300 for kind, said in found)
