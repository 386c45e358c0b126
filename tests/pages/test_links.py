"""Links of the pages and of the site lead somewhere, every page is found, and the diagram has names of the code."""

import json
import os
import re
import shutil
from pathlib import Path

import pytest

from tests.browser import running_browser
from tests.cluster import skip_or_fail
from tests.controlplane.waits import eventually
from tests.environments import python_or_skip
from tests.pages.links import anchors_of, broken_links, links_of
from tests.pages.session import ROOT
from tools import site
from tools.release.project import read_project

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


PROJECT = read_project(ROOT)
COPIES = "[...document.querySelectorAll('code[data-copy]')].map(each => each.dataset.copy)"
COPIED = {
    "how-to/spread-over-nodes": "kubectl apply -f docs/examples/web.yaml\nkubectl vmherd rollout status vmpool/web\n"
    "cat > ~/spread.yaml <<'END'\nspec:\n  virtualMachineTemplate:",
    "sandbox": "virtctl restart vm-pool-web-0\nkubectl replace --raw /apis/",
}
"""For each page, what the copy button copies from one of its blocks: commands without their output."""


def test_a_link_that_leaves_the_pages_leads_to_the_repository(tmp_path: Path) -> None:
    site.prepare(tmp_path / "work", PROJECT)
    home = f"{PROJECT.home}/{{}}/v{PROJECT.version}"
    text = (tmp_path / "work" / "docs" / "README.md").read_text()
    assert f"[Chart values]({home.format('blob')}/charts/vmherd/README.md#values)" in text
    settings = (tmp_path / "work" / "zensical.toml").read_text()
    assert '{"Tutorial" = "tutorial.md"}' in settings
    assert f'{{"Contributing" = "{home.format("blob")}/CONTRIBUTING.md"}}' in settings


def test_the_newest_version_is_the_first_in_the_menu(tmp_path: Path) -> None:
    for name in ("0.9.0", "0.10.0", "assets", "0.2.0"):
        (tmp_path / name).mkdir()
    assert list(site.versions(tmp_path)) == ["0.10.0", "0.9.0", "0.2.0"]


@pytest.mark.e2e
@pytest.mark.timeout(400)
def test_the_site_is_built_and_a_broken_link_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    if shutil.which("npm") is None:
        skip_or_fail("npm is missing: apt-get install npm")
    python = str(python_or_skip("docs"))
    root = tmp_path / "root"
    shutil.copytree(ROOT / "docs", root / "docs")
    for name in ("pyproject.toml", "zensical.toml", "charts/icon.svg"):
        (root / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, root / name)
    monkeypatch.setattr(site, "ROOT", root)
    monkeypatch.setattr(site, "WORK", tmp_path / "work")
    assert site.main(python, str(tmp_path / "site")) == 0
    built = tmp_path / "site" / PROJECT.version
    pages = [page for page in (ROOT / "docs").rglob("*.md") if page.name != "README.md"]
    for page in pages:
        assert (built / page.relative_to(ROOT / "docs").with_suffix("") / "index.html").is_file(), page
    drawn = "document.querySelector('div.mermaid')?.clientHeight > 500 && !document.querySelector('[src^=http]')"
    with running_browser(tmp_path) as browser:
        browser.open((built / "architecture" / "index.html").as_uri())
        eventually(lambda: browser.ask(drawn), what="the diagram is drawn without another server")
        for page, begin in COPIED.items():
            browser.open((built / page / "index.html").as_uri())
            eventually(
                lambda begin=begin: any(each.startswith(begin) for each in browser.ask(COPIES) or ()),
                what=f"{page} has commands to copy",
            )
            assert not any("/web created" in each for each in browser.ask(COPIES))
    [version] = json.loads((tmp_path / "site" / "versions.json").read_text())
    assert version["version"] == PROJECT.version
    assert "images/ui-pool.png" in (built / "plugin" / "index.html").read_text()
    (root / "docs" / "broken.md").write_text("# Broken\n\n[a page](missing.md), [an anchor](rules.md#missing)\n")
    capfd.readouterr()
    assert site.main(python, str(tmp_path / "site")) == 1
    said = re.sub(r"\x1b\[[0-9;]*m", "", "".join(capfd.readouterr()))
    assert ("page does not exist" in said, "anchor does not exist" in said) == (True, True)


[DIAGRAM] = re.findall(r"```mermaid\n(.*?)```", (ROOT / "docs" / "architecture.md").read_text(), re.DOTALL)
BOXES = dict(re.findall(r"^ +(\w+)\[.*]:::(\w+)$", DIAGRAM, re.MULTILINE))


@pytest.mark.parametrize("name", [name for name, kind in BOXES.items() if kind != "outside"])
def test_each_box_is_a_name_of_the_code(name: str) -> None:
    sources = [path for folder in ("controller", "informers") for path in (ROOT / folder).rglob("*.py")]
    assert any(name in path.read_text() or path.stem == name for path in sources)


def test_each_arrow_joins_two_boxes_and_each_box_has_an_arrow() -> None:
    arrows = re.findall(r"^ +(\w+) -->\|.+\| (\w+)$", DIAGRAM, re.MULTILINE)
    assert len(arrows) == DIAGRAM.count("-->")
    assert {name for arrow in arrows for name in arrow} == BOXES.keys()


def test_each_kind_of_box_has_its_colours() -> None:
    assert set(re.findall(r"classDef (\w+) ", DIAGRAM)) == set(BOXES.values())
