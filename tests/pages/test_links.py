"""Every link of a page leads somewhere, every page can be found, and every command of a page is marked or run."""

import os
from pathlib import Path

import pytest

from tests.pages.links import anchors_of, broken_links, links_of
from tests.pages.session import ROOT

PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "charts").rglob("*.md"),
        *(ROOT / "manifests").rglob("*.md"),
    ]
)
INDEX = ROOT / "docs" / "README.md"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    assert broken_links(page) == []


def test_broken_links_are_found(tmp_path: Path) -> None:
    page, other = tmp_path / "page.md", tmp_path / "other.md"
    other.write_text("# A `name`, and more\n\n## Twice\n\n## Twice\n\n```sh\n# no heading\n```\n")
    right = ["other.md", "other.md#a-name-and-more", "other.md#twice-1", "#here", "https://example.com/a?b=c#d"]
    wrong = ["missing.md", "other.md#no-heading", "other.md#twice-2", "#there", "http://example.com", "https://x y"]
    page.write_text("# Here\n\n" + "\n".join(f"[text](<{target}>)" for target in [*right, *wrong]) + "\n`[a](b)`\n")
    assert broken_links(page) == [*wrong[:-1], "https://x"]
    assert anchors_of(other) == {"a-name-and-more", "twice", "twice-1"}


def test_the_index_leads_to_every_page_of_docs() -> None:
    linked = {Path(os.path.normpath(INDEX.parent / link.partition("#")[0])) for link in links_of(INDEX)}
    missing = {page for page in (ROOT / "docs").rglob("*.md") if page not in linked} - {INDEX}
    assert {str(page.relative_to(ROOT)) for page in missing if page.parent.name != "decisions"} == set()


def test_the_readme_leads_to_the_index() -> None:
    assert "docs/README.md" in set(links_of(ROOT / "README.md"))
