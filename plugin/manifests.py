"""Reads the manifest of one replica set or pool from a file, and applies it to the object as `kubectl apply` would."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from controller.kinds import KINDS
from plugin.connection import Failed
from plugin.subjects import Subject
from plugin.views.edits import Document, Edit, field

LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
CHANGED: Final = (("spec",), ("metadata", "labels"), ("metadata", "annotations"))


class _Loader(yaml.SafeLoader):
    """Reads a time as a text, as kubectl does."""


_Loader.add_constructor("tag:yaml.org,2002:timestamp", lambda loader, node: str(node.value))


def read_manifest(file: str) -> Document:
    """Return the only document of the file, or of stdin for `-`. Raise Failed with one line if this is not possible."""
    place = place_of(file)
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text()
        loaded = [each for each in yaml.load_all(text, _Loader) if each is not None]
        documents = msgspec.json.decode(msgspec.json.encode(loaded))
    except (OSError, ValueError, TypeError, RecursionError, yaml.YAMLError) as error:
        reason = (error.strerror if isinstance(error, OSError) else "") or " ".join(str(error).split())
        raise Failed(f"error: {place} cannot be read: {reason}") from error
    if len(documents) != 1:
        raise Failed(f"error: {place} has {len(documents)} documents: a plan needs exactly one set or pool")
    if not isinstance(documents[0], dict):
        raise Failed(f"error: {place} is no manifest of a set or pool: it has no fields")
    return documents[0]


def place_of(file: str) -> str:
    return "the manifest from stdin" if file == "-" else file


def subject_in(manifest: Document, place: str) -> Subject:
    """Return the object that the manifest describes. Raise Failed if it is no set or pool, or without name or spec."""
    written, version, name = manifest.get("kind"), manifest.get("apiVersion"), field(manifest, ("metadata", "name"))
    group = str(version).partition("/")[0]
    kind = next((each for each in KINDS if each.kind == written and group in (each.group, each.own_group)), None)
    if kind is None:
        kinds = " or a ".join(each.kind for each in KINDS)
        raise Failed(f"error: {place} has the kind {written} of {version}: a plan needs a {kinds}")
    if not isinstance(name, str) or not name:
        raise Failed(f"error: {place} has no metadata.name")
    if not isinstance(field(manifest, ("spec",)), Mapping):
        raise Failed(f"error: {place} has no spec")
    return Subject(kind, group, name)


def apply_edits(document: Document, manifest: Document) -> tuple[Edit, ...]:
    """Return the changes that `kubectl apply` would make. A field that the last apply had, and the manifest has not, is
    removed. Fields that other writers set stay.
    """
    try:
        last = json.loads(field(document, ("metadata", "annotations", LAST_APPLIED)))
    except (TypeError, ValueError):
        last = {}
    edits = []
    for path in CHANGED:
        values = (field(each, path) for each in (document, last if isinstance(last, dict) else {}, manifest))
        current, old, new = (each if isinstance(each, Mapping) else {} for each in values)
        merged = _merged(current, old, new)
        if merged != current:
            edits.append(Edit(path, merged))
    return tuple(edits)


def _merged(current: Mapping[str, Any], old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    result = {name: value for name, value in current.items() if name not in old or name in new}
    for name, value in new.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, Mapping):
            before, past = (each.get(name) for each in (current, old))
            result[name] = _merged(
                before if isinstance(before, Mapping) else {}, past if isinstance(past, Mapping) else {}, value
            )
        else:
            result[name] = value
    return result
