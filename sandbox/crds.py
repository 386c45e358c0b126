"""This module installs CustomResourceDefinitions and waits until the API server lists their kinds in discovery."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from sandbox.admin import Admin, Rejected, Unanswered

PROJECT = Path(__file__).parent.parent
CRD_DIRECTORIES = (PROJECT / "manifests" / "crds", Path(__file__).parent / "crds")
"""The directory of vmherd's own CRDs, and the directory of the CRDs of KubeVirt and CDI."""

SERVED_TIMEOUT_S = 30.0
"""The maximum wait in seconds until discovery lists the installed kinds."""

PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class CrdError(Exception):
    """Raised if CRDs cannot be installed. `str()` returns the reason.

    Causes are an invalid file, a CRD that the API server rejects or does not serve, and a server that does not answer.
    """


class _Served(NamedTuple):
    """One version of a resource that the API server serves or should serve."""

    group_version: str
    plural: str


def install(kubeconfig: Path, directories: Iterable[Path]) -> list[str]:
    """Apply every CRD in these directories.

    Wait until discovery lists all kinds, and return the names of the CRDs. Raises CrdError. A second call with the same
    CRDs changes nothing. A directory that does not exist is skipped.
    """
    admin = Admin(kubeconfig)
    definitions = [definition for directory in directories for definition in _definitions(directory)]
    try:
        for definition in definitions:
            _apply(admin, definition)
        _wait_until_served(admin, {served for definition in definitions for served in _served_versions(definition)})
    except Unanswered as error:
        raise CrdError(f"the API server does not answer: {error}") from error
    return [_name(definition) for definition in definitions]


def _definitions(directory: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(directory.glob("*.yaml")):
        try:
            documents = list(yaml.safe_load_all(path.read_text()))
        except yaml.YAMLError as error:
            raise CrdError(f"{path}: {error}") from error
        for document in documents:
            if isinstance(document, dict) and document.get("kind") == "CustomResourceDefinition":
                yield document


def _apply(admin: Admin, definition: dict[str, Any]) -> None:
    """Apply one CRD with server-side apply. A second call with the same CRD changes nothing."""
    path = f"{PATH}/{_name(definition)}?fieldManager=vmherd-sandbox&force=true"
    try:
        admin.send("PATCH", path, json.dumps(definition).encode(), "application/apply-patch+yaml")
    except Rejected as error:
        raise CrdError(f"{_name(definition)}: {error}") from error


def _served_versions(definition: dict[str, Any]) -> Iterator[_Served]:
    spec = definition["spec"]
    for version in spec["versions"]:
        if version["served"]:
            yield _Served(f"{spec['group']}/{version['name']}", spec["names"]["plural"])


def _wait_until_served(admin: Admin, wanted: set[_Served]) -> None:
    """Wait until discovery lists all wanted resources.

    Raises CrdError after SERVED_TIMEOUT_S seconds. Discovery lists a kind shortly after its CRD has the condition
    Established.
    """
    deadline = time.monotonic() + SERVED_TIMEOUT_S
    while missing := wanted - _discovered(admin, {served.group_version for served in wanted}):
        if time.monotonic() > deadline:
            names = ", ".join(sorted(f"{plural} ({version})" for version, plural in missing))
            raise CrdError(f"not served after {SERVED_TIMEOUT_S:g} s: {names}; {_failure_reason(admin)}")
        time.sleep(0.05)


def _discovered(admin: Admin, group_versions: Iterable[str]) -> set[_Served]:
    discovered: set[_Served] = set()
    for group_version in group_versions:
        try:
            resources = admin.get(f"/apis/{group_version}")["resources"]
        except Rejected:
            continue
        discovered.update(_Served(group_version, resource["name"]) for resource in resources)
    return discovered


def _failure_reason(admin: Admin) -> str:
    """Return the first problem in the conditions of all CRDs, or else a general message."""
    for definition in admin.get(PATH)["items"]:
        for condition in definition.get("status", {}).get("conditions", ()):
            bad = "True" if condition["type"] == "NonStructuralSchema" else "False"
            if condition["status"] == bad and condition["type"] in (
                "Established",
                "NamesAccepted",
                "NonStructuralSchema",
            ):
                return f"{_name(definition)}: {condition.get('message', condition['type'])}"
    return "the API server gives no reason"


def _name(definition: dict[str, Any]) -> str:
    return str(definition["metadata"]["name"])
