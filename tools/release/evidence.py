"""Checksums, the statement about the origin of the files, and the notes."""

import hashlib
import json
from collections.abc import Iterable, Mapping

from tools.reference.markdown import code, table
from tools.release.project import Commit, Project

SUMS = "SHA256SUMS"
PROVENANCE = "provenance.intoto.json"


def sums(files: Mapping[str, bytes]) -> bytes:
    """Return the checksums in the format that `sha256sum --check` reads."""
    return "".join(f"{_digest(content)}  {name}\n" for name, content in sorted(files.items())).encode()


def provenance(project: Project, commit: Commit, files: Mapping[str, bytes], sources: Mapping[str, bytes]) -> bytes:
    """Return an in-toto statement with a SLSA provenance: which commit and which pins the files come from.

    The machine that makes the release makes the statement, so no other party confirms it.
    """
    pins = [{"uri": name, "digest": {"sha256": _digest(content)}} for name, content in sorted(sources.items())]
    statement = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": name, "digest": {"sha256": _digest(each)}} for name, each in sorted(files.items())],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": f"{project.home}/releasing/v1",
                "externalParameters": {"version": project.version},
                "resolvedDependencies": [{"uri": f"git+{project.home}", "digest": {"gitCommit": commit.id}}, *pins],
            },
            "runDetails": {"builder": {"id": f"{project.home}/releasing/make-release"}},
        },
    }
    return (json.dumps(statement, indent=2) + "\n").encode()


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


PURPOSES = (
    ("informers-", "the package informers alone, for other controllers"),
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


def release_notes(project: Project, commit: Commit, files: Iterable[str]) -> str:
    """Return the section of CHANGELOG.md, the list of files, and how to check them."""
    listed = table(("file", "content"), [(code(name), _purpose(name)) for name in sorted(files)])
    check = f"All files come from the commit {commit.id}. Check them with `sha256sum --check SHA256SUMS`."
    return f"# {project.name} {project.version}\n\n{commit.notes}\n\n## Files\n\n{listed}\n{check}\n"


def _purpose(name: str) -> str:
    for part, purpose in PURPOSES:
        if name.endswith(part) or (part.endswith("-") and part in name):
            return purpose
    return "the plugin for krew" if name.startswith("kubectl-") else "the source"
