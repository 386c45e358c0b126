"""Lists of the packages in the image and in the zipapp, in the format of CycloneDX.

cyclonedx-bom reads the lock files. syft and buildx list what is in a built image, but a release has only the recipe of
the image, and needs no container runtime.
"""

import json
import re
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tools.release.project import Commit, Project, run

SPECIFICATION = "1.6"
BASE_IMAGE = re.compile(
    r"^ARG PYTHON_IMAGE=(?P<name>[\w./-]+):(?P<tag>[\w.-]+)(@(?P<digest>sha256:[0-9a-f]{64}))?$", re.MULTILINE
)

VALIDATE = """
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
validator = JsonStrictValidator(SchemaVersion.from_version(sys.argv[1]))
errors = [f"{path}: {error}" for path in sys.argv[2:] if (error := validator.validate_str(open(path).read()))]
sys.exit("a list of packages is not valid: " + "; ".join(errors) if errors else None)
"""


def of_release(python: Path, project: Project, commit: Commit, source: Path, scratch: Path) -> dict[str, bytes]:
    """Return the lists for the image and for the zipapp. Raises Failed if one does not have the schema of CycloneDX."""
    lists = {
        "image": of_image(python, project, commit, source),
        "plugin": of_plugin(python, project, commit, source),
    }
    files = {f"{project.name}-{project.version}-{of}.cdx.json": _encoded(content) for of, content in lists.items()}
    for name, content in files.items():
        (scratch / name).write_bytes(content)
    run(python, "-c", VALIDATE, SPECIFICATION, *(scratch / name for name in files))
    return files


def of_image(python: Path, project: Project, commit: Commit, source: Path) -> dict[str, Any]:
    """Return the list for the image: the pinned packages and the base image."""
    content = _of_lock(python, project, commit, source, source / ".ci" / "requirements-run.txt")
    content["metadata"]["component"]["type"] = "container"
    content["components"].insert(0, base_image((source / "Dockerfile").read_text()))
    return connected(content)


def of_plugin(python: Path, project: Project, commit: Commit, source: Path) -> dict[str, Any]:
    """Return the list for the zipapp."""
    content = _of_lock(python, project, commit, source, source / ".ci" / "requirements-plugin.txt")
    return connected(content)


def connected(content: dict[str, Any]) -> dict[str, Any]:
    """Return the list with the URL of each package as its reference. The program depends on all packages."""
    program, packages = content["metadata"]["component"], content["components"]
    for package in packages:
        package["bom-ref"] = package["purl"]
        package.pop("description", None)  # the line of the lock file, with up to 100 hashes
    references = [package["bom-ref"] for package in packages]
    depends = [{"ref": program["bom-ref"], "dependsOn": references}, *({"ref": each} for each in references)]
    return {**content, "dependencies": depends}


def base_image(dockerfile: str) -> dict[str, Any]:
    """Return the component for the base image of the Dockerfile."""
    found = BASE_IMAGE.search(dockerfile)
    if found is None:
        raise ValueError("the Dockerfile does not name its base image")
    name, tag, digest = found["name"], found["tag"], found["digest"]
    purl = f"pkg:docker/{name}@{digest}?tag={tag}" if digest else f"pkg:docker/{name}@{tag}"
    return {"type": "container", "name": name, "version": tag, "purl": purl}


def _of_lock(python: Path, project: Project, commit: Commit, source: Path, lock: Path) -> dict[str, Any]:
    made = run(
        *(python, "-m", "cyclonedx_py", "requirements", lock, "--pyproject", source / "pyproject.toml"),
        *("--mc-type", "application", "--output-reproducible", "--of", "JSON", "--sv", SPECIFICATION),
        "--no-validate",  # `of_release` validates the final lists
    )
    content: dict[str, Any] = json.loads(made)
    # The list is the same for the same commit, so its time and its number are those of the commit.
    content["metadata"]["timestamp"] = datetime.fromtimestamp(commit.time, UTC).isoformat()
    content["metadata"]["component"]["version"] = project.version
    content["serialNumber"] = uuid.uuid5(uuid.NAMESPACE_URL, f"{project.home}/{commit.id}/{lock.name}").urn
    return content


def _encoded(content: dict[str, Any]) -> bytes:
    return f"{json.dumps(content, indent=2, ensure_ascii=False)}\n".encode()
