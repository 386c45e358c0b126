"""The chart package, with the metadata that Artifact Hub reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from tools.chart.helm import find_helm
from tools.release import archives, changelog
from tools.release.project import Commit, Project
from tools.release.running import run

HELM = 3
"""The major version of Helm that packs the chart. The package is for Helm 3 and Helm 4."""


def package(project: Project, commit: Commit, source: Path, scratch: Path) -> dict[str, bytes]:
    """Return the chart package and `artifacthub-repo.yml`. Changes `Chart.yaml` in the source, which is a copy."""
    helm, chart = find_helm(HELM), source / "charts" / project.name
    about = chart / "Chart.yaml"
    definitions = [yaml.safe_load(path.read_text()) for path in sorted((chart / "files" / "crds").glob("*.yaml"))]
    about.write_text(described(about.read_text(), project, commit, definitions))
    run(helm, "lint", "--strict", "--set", "mode=standalone", chart)
    run(helm, "package", chart, "--destination", scratch)
    [made] = scratch.glob("*.tgz")
    return {
        made.name: archives.tar_gz(archives.read_tar(made.read_bytes()), commit.time),
        "artifacthub-repo.yml": repository(project).encode(),
    }


def described(about: str, project: Project, commit: Commit, definitions: list[dict[str, Any]]) -> str:
    """Return `Chart.yaml` with the annotations of a release: changes, kinds and links."""
    content = yaml.safe_load(about)
    if (content["version"], content["appVersion"]) != (project.version, project.version):
        raise ValueError(f"Chart.yaml has not the version {project.version}: run `make manifests`")
    noted = list(changelog.changes(commit.notes))
    content["annotations"] |= {
        "artifacthub.io/changes": _list({"kind": kind, "description": text} for kind, text in noted),
        "artifacthub.io/containsSecurityUpdates": str(any(kind == "security" for kind, _ in noted)).lower(),
        "artifacthub.io/crds": _list(_kind(each) for each in definitions),
        "artifacthub.io/links": _list([{"name": "Releases", "url": f"{project.home}/releases"}]),
        "artifacthub.io/prerelease": "false",
    }
    return yaml.safe_dump(content, sort_keys=False, width=120)


def repository(project: Project) -> str:
    """Return `artifacthub-repo.yml`. It belongs next to the index of the chart repository."""
    content: dict[str, Any] = {"owners": [{"name": project.maintainer}]}
    if project.artifact_hub_repository:
        content = {"repositoryID": project.artifact_hub_repository, **content}
    return yaml.safe_dump(content, sort_keys=False)


def _kind(definition: dict[str, Any]) -> dict[str, str]:
    spec = definition["spec"]
    newest = next(each["name"] for each in spec["versions"] if each["storage"])
    kind = spec["names"]["kind"]
    return {
        "kind": kind,
        "version": newest,
        "name": definition["metadata"]["name"],
        "displayName": kind,
        "description": spec["versions"][0]["schema"]["openAPIV3Schema"]["description"].split("\n")[0],
    }


def _list(entries: Any) -> str:
    return yaml.safe_dump(list(entries), sort_keys=False, width=1000)
