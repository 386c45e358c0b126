"""A namespace of an API server as a model: documents, deletion with finalizers, patches, and the garbage collector."""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from datetime import datetime, timedelta
from itertools import count
from typing import Any, TypeAlias

from informers.errors import AlreadyExists, Conflict, Invalid, NotFound
from tests.builders import NOW
from tests.lives import merged

Json: TypeAlias = dict[str, Any]

NAMESPACE = "default"
FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"


class Api:
    """Objects by plural and name. Its methods raise the exceptions of a client."""

    def __init__(self) -> None:
        self.now = NOW
        self.objects: dict[str, dict[str, Json]] = {}
        self._numbers = count(1000)

    def of(self, plural: str) -> dict[str, Json]:
        return self.objects.setdefault(plural, {})

    def get(self, plural: str, name: str) -> Json:
        held = self.of(plural).get(name)
        if held is None:
            raise NotFound(f"{plural} {name} not found", code=404)
        return held

    def create(self, plural: str, document: Json) -> Json:
        name = document["metadata"]["name"]
        if name in self.of(plural):
            raise AlreadyExists(f"{plural} {name} already exists", code=409)
        made = deepcopy(document)
        assert made["metadata"].setdefault("namespace", NAMESPACE) == NAMESPACE
        made["metadata"].update(uid=f"made-{next(self._numbers)}", creationTimestamp=wire(self.now))
        self.of(plural)[name] = made
        self.touch(made)
        return made

    def delete(self, plural: str, name: str, *, uid: str | None = None, policy: str = "Background") -> None:
        """Mark an object as terminating. It is removed once it has no finalizer."""
        meta = self.get(plural, name)["metadata"]
        if uid is not None and meta["uid"] != uid:
            raise Conflict("Precondition failed: UID in precondition", code=409)
        meta.setdefault("deletionTimestamp", wire(self.now))
        holder = {"Foreground": FOREGROUND, "Orphan": ORPHAN}.get(policy)
        if holder is not None and holder not in finalizers(meta):
            meta["finalizers"] = [*finalizers(meta), holder]
        self._changed(plural, name)

    def patch(self, plural: str, name: str, body: bytes, *, kind: str = "merge") -> Json:
        held = self.get(plural, name)
        patch = json.loads(body)
        new = apply_json_patch(held, patch) if kind == "json" else merged(held, patch)
        old_meta, meta = held["metadata"], new["metadata"]
        if meta["uid"] != old_meta["uid"] or meta["resourceVersion"] != old_meta["resourceVersion"]:
            raise Conflict(f"{plural} {name} has been modified", code=409)
        if meta["name"] != name or meta["namespace"] != NAMESPACE:
            raise Invalid("metadata.name is immutable", code=422)
        if "deletionTimestamp" in meta and set(finalizers(meta)) - set(finalizers(old_meta)):
            raise Invalid("no new finalizers can be added if the object is being deleted", code=422)
        self.of(plural)[name] = new
        self._changed(plural, name)
        return new

    def touch(self, document: Json) -> None:
        """Give a written document a new resource version."""
        document["metadata"]["resourceVersion"] = str(next(self._numbers))

    def put(self, plural: str, document: Json) -> None:
        """Store a document of another client."""
        self.of(plural)[document["metadata"]["name"]] = document
        self._changed(plural, document["metadata"]["name"])

    def every(self) -> Iterator[tuple[str, str, Json]]:
        return iter([(plural, name, held) for plural, group in self.objects.items() for name, held in group.items()])

    def collect_garbage(self) -> None:
        """Until nothing changes: orphan objects, delete in the foreground, and delete objects without an owner."""
        while any([self._collect(plural, name, held["metadata"]) for plural, name, held in self.every()]):
            pass

    def _collect(self, plural: str, name: str, meta: Json) -> bool:
        if self.of(plural).get(name, {}).get("metadata") is not meta:
            return False
        if "deletionTimestamp" in meta and ORPHAN in finalizers(meta):
            for _, _, dependent in self._dependents(meta["uid"]):
                references = dependent["metadata"]["ownerReferences"]
                dependent["metadata"]["ownerReferences"] = [ref for ref in references if ref["uid"] != meta["uid"]]
                self.touch(dependent)
            self._finish(plural, name, ORPHAN)
            return True
        if "deletionTimestamp" in meta and FOREGROUND in finalizers(meta):
            return self._collect_in_the_foreground(plural, name, meta)
        references = meta.get("ownerReferences") or []
        alive = {held["metadata"]["uid"] for _, _, held in self.every()}
        if references and "deletionTimestamp" not in meta and not any(ref["uid"] in alive for ref in references):
            self.delete(plural, name)
            return True
        return False

    def _collect_in_the_foreground(self, plural: str, name: str, meta: Json) -> bool:
        dependents = self._dependents(meta["uid"])
        if not any(ref.get("blockOwnerDeletion") for _, _, held in dependents for ref in references_to(held, meta)):
            self._finish(plural, name, FOREGROUND)
            return True
        todo = [each for each in dependents if "deletionTimestamp" not in each[2]["metadata"]]
        for other, dependent, held in todo:
            policy = "Foreground" if self._dependents(held["metadata"]["uid"]) else "Background"
            self.delete(other, dependent, policy=policy)
        return bool(todo)

    def _dependents(self, uid: str) -> list[tuple[str, str, Json]]:
        return [each for each in self.every() if references_to(each[2], {"uid": uid})]

    def _finish(self, plural: str, name: str, finalizer: str) -> None:
        meta = self.get(plural, name)["metadata"]
        meta["finalizers"] = [each for each in finalizers(meta) if each != finalizer]
        self._changed(plural, name)

    def _changed(self, plural: str, name: str) -> None:
        held = self.of(plural)[name]
        self.touch(held)
        if "deletionTimestamp" in held["metadata"] and not finalizers(held["metadata"]):
            del self.of(plural)[name]


def finalizers(meta: Json) -> list[str]:
    return meta.get("finalizers") or []


def references_to(dependent: Json, owner: Json) -> list[Json]:
    return [ref for ref in dependent["metadata"].get("ownerReferences") or [] if ref["uid"] == owner["uid"]]


def apply_json_patch(document: Json, steps: list[Json]) -> Json:
    """Apply the operations `test` and `remove` of RFC 6902."""
    document = deepcopy(document)
    for step in steps:
        *parents, last = step["path"].strip("/").split("/")
        holder: Any = document
        try:
            for part in parents:
                holder = holder[int(part) if isinstance(holder, list) else part]
            place: Any = int(last) if isinstance(holder, list) else last
            value = holder[place]
        except (KeyError, IndexError, TypeError) as error:
            raise Invalid(f"no such path: {step['path']}", code=422) from error
        match step["op"]:
            case "test":
                if value != step["value"]:
                    raise Invalid(f"test failed: {step['path']}", code=422)
            case "remove":
                del holder[place]
            case other:
                raise AssertionError(f"not modelled: {other}")
    return document


def wire(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def later(moment: datetime, seconds: float) -> datetime:
    return moment + timedelta(seconds=seconds)
