"""The metadata in a release: the manifest for krew, the checksums and the notes."""

import hashlib
import re
from typing import Any

import pytest
import yaml

from tools.release import __main__ as release
from tools.release import plugin
from tools.release.project import ROOT, Commit, read_project, section

PROJECT = read_project(ROOT)
COMMIT = Commit("c" * 40, 1_790_000_000, "### Added\n\n- **A thing**: new.\n")
FILES = {"a.whl": b"wheel", "b.tar.gz": b"source"}
ARCHIVES = {plugin.archive_name(PROJECT, platform): platform.encode() for platform in plugin.PLATFORMS}


@pytest.fixture(scope="module")
def manifest() -> dict[str, Any]:
    return dict(yaml.safe_load(plugin.manifest(PROJECT, ARCHIVES)))


def test_the_manifest_follows_the_rules_of_krew(manifest: dict[str, Any]) -> None:
    """The rules of krew's validator. The real validator accepted this manifest, and the real krew installed it."""
    spec = manifest["spec"]
    assert (manifest["apiVersion"], manifest["kind"]) == ("krew.googlecontainertools.github.com/v1alpha2", "Plugin")
    assert re.fullmatch(r"[\w-]+", manifest["metadata"]["name"])
    assert re.fullmatch(r"v\d+\.\d+\.\d+", spec["version"])
    assert re.fullmatch(".{1,50}", spec["shortDescription"])
    assert max(map(len, (spec["description"] + spec["caveats"]).splitlines())) <= 80
    for platform in spec["platforms"]:
        name = platform["uri"].removeprefix(f"{PROJECT.home}/releases/download/v{PROJECT.version}/")
        assert platform["sha256"] == hashlib.sha256(ARCHIVES[name]).hexdigest()
        assert platform["bin"] == plugin.NAME
        assert set(platform["selector"]["matchLabels"]) == {"os", "arch"}
    systems = [tuple(each["selector"]["matchLabels"].values()) for each in spec["platforms"]]
    assert len(systems) == len(set(systems)), "at most one entry is for one platform"


def test_the_notes_have_the_changes_and_lead_to_the_list_of_files() -> None:
    text = release.release_notes(PROJECT, COMMIT)
    assert text.startswith(f"# {PROJECT.name} {PROJECT.version}\n\n### Added\n")
    assert f"/v{PROJECT.version}/docs/releasing.md#files)" in text
    assert COMMIT.id in text


def test_the_notes_are_the_section_of_the_version() -> None:
    text = "# Changelog\n\n## [Unreleased]\n\n## [1.2.0] - 2026-11-22\n\n- New\n\n## [1.1.0]\n\n- Old\n\n[1.2.0]: https://a.b\n"
    found = [section(text, version) for version in ("1.2.0", "1.1.0", "1.2", "Unreleased")]
    assert found == ["- New", "- Old", None, None]
