"""Checksums, the statement about the origin of the files, and the notes."""

import hashlib
import json
from collections.abc import Mapping

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


def release_notes(project: Project, commit: Commit) -> str:
    """Return the section of CHANGELOG.md, where the files are described, and how to check them."""
    files = f"[docs/releasing.md]({project.home}/blob/v{project.version}/docs/releasing.md#files) describes the files."
    check = f"All come from the commit {commit.id}. Check them with `sha256sum --check SHA256SUMS`."
    return f"# {project.name} {project.version}\n\n{commit.notes}\n\n## Files\n\n{files} {check}\n"
