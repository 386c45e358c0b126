"""The site: each page and each link works there, too."""

import json
import re
import shutil
from pathlib import Path

import pytest

from tests import environments
from tests.browser import running_browser
from tests.cluster import skip_or_fail
from tests.controlplane.waits import eventually
from tools import site
from tools.release.project import ROOT, read_project

PROJECT = read_project(ROOT)


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
    try:
        python = str(environments.find_or_install("docs", ROOT / ".ci" / "requirements-docs.txt"))
    except environments.EnvironmentMissing as error:
        skip_or_fail(str(error))
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
    [version] = json.loads((tmp_path / "site" / "versions.json").read_text())
    assert version["version"] == PROJECT.version
    assert "images/ui-pool.png" in (built / "plugin" / "index.html").read_text()
    (root / "docs" / "broken.md").write_text("# Broken\n\n[a page](missing.md), [an anchor](rules.md#missing)\n")
    capfd.readouterr()
    assert site.main(python, str(tmp_path / "site")) == 1
    said = re.sub(r"\x1b\[[0-9;]*m", "", "".join(capfd.readouterr()))
    assert ("page does not exist" in said, "anchor does not exist" in said) == (True, True)
