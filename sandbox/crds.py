"""This module installs CustomResourceDefinitions and waits until the API server lists their kinds in discovery."""

import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from sandbox.admin import Admin, Rejected, Unanswered

PROJECT = Path(__file__).parent.parent
CRD_DIRECTORIES = (PROJECT / "manifests" / "crds", Path(__file__).parent / "crds")
SERVED_TIMEOUT_S = 30.0
CHECKED = ("Established", "NamesAccepted", "NonStructuralSchema")
PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class CrdError(Exception):
    """Raised if CRDs cannot be installed. `str()` returns the reason.

    Causes are an invalid file, a CRD that the API server rejects or does not serve, and a server that does not answer.
    """


def install(kubeconfig: Path, directories: Iterable[Path]) -> None:
    """Apply every CRD in these directories.

    Return when discovery lists all kinds. Raises CrdError. A second call with the same CRDs changes nothing. A
    directory that does not exist is skipped.
    """
    admin = Admin(kubeconfig)
    definitions = [definition for directory in directories for definition in _definitions(directory)]
    try:
        for definition in definitions:
            admin.apply(f"{PATH}/{name_of(definition)}", definition)
        wait_until_served(admin, definitions)
    except Rejected as error:
        raise CrdError(f"{name_of(definition)}: {error}") from error
    except Unanswered as error:
        raise CrdError(f"the API server does not answer: {error}") from error


def _definitions(directory: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(directory.glob("*.yaml")):
        try:
            documents = list(yaml.safe_load_all(path.read_text()))
        except yaml.YAMLError as error:
            raise CrdError(f"{path}: {error}") from error
        for document in documents:
            if isinstance(document, dict) and document.get("kind") == "CustomResourceDefinition":
                yield document


def wait_until_served(admin: Admin, definitions: Iterable[dict[str, Any]]) -> None:
    """Wait until discovery lists all kinds of these CRDs.

    Raises CrdError after SERVED_TIMEOUT_S seconds. Discovery lists a kind shortly after its CRD has the condition
    Established.
    """
    missing = {served for definition in definitions for served in _served_versions(definition)}
    deadline = time.monotonic() + SERVED_TIMEOUT_S
    while missing := missing - _discovered(admin, {group_version for group_version, _ in missing}):
        if time.monotonic() > deadline:
            names = ", ".join(sorted(f"{plural} ({version})" for version, plural in missing))
            raise CrdError(f"not served after {SERVED_TIMEOUT_S:g} s: {names}; {_failure_reason(admin)}")
        time.sleep(0.05)


def _served_versions(definition: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the group with its version, and the plural, of each version that the API server should serve."""
    spec = definition["spec"]
    for version in spec["versions"]:
        if version["served"]:
            yield f"{spec['group']}/{version['name']}", spec["names"]["plural"]


def _discovered(admin: Admin, group_versions: Iterable[str]) -> set[tuple[str, str]]:
    discovered: set[tuple[str, str]] = set()
    for group_version in group_versions:
        with suppress(Rejected):
            resources = admin.get(f"/apis/{group_version}")["resources"]
            discovered.update((group_version, resource["name"]) for resource in resources)
    return discovered


def _failure_reason(admin: Admin) -> str:
    for definition in admin.get(PATH)["items"]:
        for condition in definition.get("status", {}).get("conditions", ()):
            bad = "True" if condition["type"] == "NonStructuralSchema" else "False"
            if condition["status"] == bad and condition["type"] in CHECKED:
                return f"{name_of(definition)}: {condition.get('message', condition['type'])}"
    return "the API server gives no reason"


def name_of(definition: dict[str, Any]) -> str:
    return str(definition["metadata"]["name"])
