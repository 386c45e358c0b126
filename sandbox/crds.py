"""Puts the CustomResourceDefinitions into a cluster, and waits until the API server serves and announces them."""

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
"""The kinds that the controller serves, and the ones that KubeVirt and CDI would bring."""

SERVED_WITHIN_S = 30.0
PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class CrdError(Exception):
    """A definition was refused, or is not served. `str()` says which and why."""


class _Served(NamedTuple):
    """What a definition promises: one version of one resource."""

    group_version: str
    plural: str


def install(kubeconfig: Path, directories: Iterable[Path]) -> list[str]:
    """Apply every definition in these directories; return their names when all can be used. Raises CrdError.

    Doing it again changes nothing. A directory that does not exist holds none.
    """
    admin = Admin(kubeconfig)
    definitions = [definition for directory in directories for definition in _definitions(directory)]
    try:
        for definition in definitions:
            _apply(admin, definition)
        _wait_until_served(admin, {served for definition in definitions for served in _promises(definition)})
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
    """Server-side apply, so that a second time changes nothing."""
    path = f"{PATH}/{_name(definition)}?fieldManager=vmherd-sandbox&force=true"
    try:
        admin.send("PATCH", path, json.dumps(definition).encode(), "application/apply-patch+yaml")
    except Rejected as error:
        raise CrdError(f"{_name(definition)}: {error}") from error


def _promises(definition: dict[str, Any]) -> Iterator[_Served]:
    spec = definition["spec"]
    for version in spec["versions"]:
        if version["served"]:
            yield _Served(f"{spec['group']}/{version['name']}", spec["names"]["plural"])


def _wait_until_served(admin: Admin, wanted: set[_Served]) -> None:
    """A kind is announced a moment after it is established; before that, kubectl does not know it."""
    give_up = time.monotonic() + SERVED_WITHIN_S
    while missing := wanted - _announced(admin, {served.group_version for served in wanted}):
        if time.monotonic() > give_up:
            names = ", ".join(sorted(f"{plural} ({version})" for version, plural in missing))
            raise CrdError(f"not served after {SERVED_WITHIN_S:g} s: {names}; {_why_not(admin)}")
        time.sleep(0.05)


def _announced(admin: Admin, group_versions: Iterable[str]) -> set[_Served]:
    announced: set[_Served] = set()
    for group_version in group_versions:
        try:
            resources = admin.get(f"/apis/{group_version}")["resources"]
        except Rejected:
            continue
        announced.update(_Served(group_version, resource["name"]) for resource in resources)
    return announced


def _why_not(admin: Admin) -> str:
    """What the API server says against the definitions it has."""
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
