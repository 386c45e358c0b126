"""The packages of a release: the source distribution, the wheel, the recipe of the image, and the chart.

setuptools stores times and modes of files, so the archives are written again. hatchling was tried: its archives need
that no more, but the build of the image needs six pinned packages in the place of one.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tools.chart.helm import find_helm
from tools.release import archives, changelog
from tools.release.project import Commit, Project, run


def build(python: Path, source: Path, directory: Path, epoch: int) -> dict[str, bytes]:
    """Return both files by name. The wheel is made from the source distribution, so that distribution is complete."""
    run(python, "-m", "build", "--no-isolation", "--outdir", directory, source, SOURCE_DATE_EPOCH=str(epoch))
    [sdist], [wheel] = directory.glob("*.tar.gz"), directory.glob("*.whl")
    return {
        sdist.name: archives.tar_gz(archives.read_tar(sdist.read_bytes()), epoch),
        wheel.name: archives.zipped(archives.read_zip(wheel.read_bytes()), epoch),
    }


def informers(project: Project, source: Path, directory: Path) -> Path:
    """Write the sources of the distribution `vmherd-informers` into a new directory, and return the directory.

    Other projects install it to get `informers` without the packages `controller` and `plugin`.
    """
    shutil.copytree(source / "informers", directory / "informers", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(source / "LICENSE", directory)
    about = (source / "tools" / "release" / "informers.toml").read_text()
    (directory / "pyproject.toml").write_text(about.replace("@version@", project.version))
    return directory


ALWAYS = ("Dockerfile", ".dockerignore")


def image_context(files: Mapping[str, archives.File], epoch: int) -> bytes:
    """Return the recipe of the image: the Dockerfile and exactly the files that it copies, as one archive.

    `docker build --tag vmherd - < vmherd-0.1.0-image.tar.gz` builds the image.
    """
    shown = [line[1:] for line in files[".dockerignore"].content.decode().splitlines() if line.startswith("!")]
    wanted = {name: file for name, file in files.items() if name in ALWAYS or _below(name, shown)}
    return archives.tar_gz(dict(sorted(wanted.items())), epoch)


def _below(name: str, shown: list[str]) -> bool:
    return any(name == each or name.startswith(f"{each}/") for each in shown)


HELM = 3
"""The major version of Helm that packs the chart. The package is for Helm 3 and Helm 4."""


def chart(project: Project, commit: Commit, source: Path, scratch: Path) -> dict[str, bytes]:
    """Return the chart package and `artifacthub-repo.yml`. Changes `Chart.yaml` in the source, which is a copy."""
    helm, folder = find_helm(HELM), source / "charts" / project.name
    about = folder / "Chart.yaml"
    definitions = [yaml.safe_load(path.read_text()) for path in sorted((folder / "files" / "crds").glob("*.yaml"))]
    about.write_text(described(about.read_text(), project, commit, definitions))
    run(helm, "lint", "--strict", "--set", "mode=standalone,image.registry=example.com", folder)
    run(helm, "package", folder, "--destination", scratch)
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
