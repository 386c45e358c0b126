"""The release notes: the section of CHANGELOG.md, the list of files, and how to check them."""

from __future__ import annotations

from collections.abc import Iterable

from tools.release.project import Commit, Project

PURPOSES = (
    (".whl", "the controller, the plugin and the sandbox, for pip and pipx"),
    (".tgz", "the Helm chart"),
    ("-image.cdx.json", "the packages of the image, as CycloneDX"),
    ("-plugin.cdx.json", "the packages of the plugin, as CycloneDX"),
    ("kubectl-vmherd", "the plugin as one file: Linux x86_64 and aarch64, macOS arm64; needs Python 3.11 to 3.14"),
    ("-image.tar.gz", "the recipe of the image with its pinned packages: `docker build --tag vmherd - < FILE`"),
    ("vmherd.yaml", "the manifest for krew"),
    ("artifacthub-repo.yml", "the metadata for a chart repository on Artifact Hub"),
    ("provenance.intoto.json", "the commit and the pins that the files come from"),
)


def text(project: Project, commit: Commit, files: Iterable[str]) -> str:
    rows = [f"| `{name}` | {_purpose(name)} |" for name in sorted(files)]
    return "\n".join(
        [
            f"# {project.name} {project.version}",
            "",
            commit.notes,
            "",
            "## Files",
            "",
            "| file | content |",
            "| --- | --- |",
            *rows,
            "",
            f"All files come from the commit {commit.id}. Check them with `sha256sum --check SHA256SUMS`.",
            "",
        ]
    )


def _purpose(name: str) -> str:
    for ending, purpose in PURPOSES:
        if name.endswith(ending):
            return purpose
    return "the plugin for krew" if name.startswith("kubectl-") else "the source"
