"""The objects of the replay server, and the writes that change them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from benchmarks.replay.collection import Collection, Item, Key, encode

Document = dict[str, Any]


class Refused(Exception):
    """A write or a read that the server refuses, with the HTTP status and the reason of the Status object."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code, self.reason, self.message = code, reason, message


class State:
    """The collections by group and plural, and the last resourceVersion."""

    def __init__(self) -> None:
        self.collections: dict[tuple[str, str], Collection] = {}
        self.version = 1_000
        self._uids = 0

    def add(self, collection: Collection) -> Collection:
        return self.collections.setdefault((collection.group, collection.plural), collection)

    def next_version(self) -> int:
        self.version += 1
        return self.version

    def item(self, collection: Collection, key: Key) -> Item:
        found = collection.items.get(key)
        if found is None:
            raise Refused(404, "NotFound", f'{collection.plural} "{key[1]}" not found')
        return found

    def create(self, collection: Collection, namespace: str, body: bytes) -> bytes:
        document = msgspec.json.decode(body)
        meta = document.setdefault("metadata", {})
        self._uids += 1
        meta.setdefault("name", f"{meta.get('generateName', '')}{self._uids:x}")
        key = (namespace, meta["name"])
        if key in collection.items:
            raise Refused(409, "AlreadyExists", f'{collection.plural} "{key[1]}" already exists')
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        meta |= {"namespace": namespace, "uid": f"ffffffff-0000-4000-8000-{self._uids:012x}"}
        meta |= {"creationTimestamp": now, "generation": 1}
        return self._store(collection, key, document, "ADDED")

    def patch(self, collection: Collection, key: Key, body: bytes, *, is_json_patch: bool, subresource: str) -> bytes:
        old: Document = msgspec.json.decode(self.item(collection, key).render())
        change = msgspec.json.decode(body)
        document = _json_patched(old, change) if is_json_patch else _merged(old, change)
        wanted = document["metadata"].get("resourceVersion")
        if wanted != old["metadata"]["resourceVersion"] or document["metadata"]["uid"] != old["metadata"]["uid"]:
            raise Refused(409, "Conflict", f'{collection.plural} "{key[1]}" has been modified')
        if subresource == "status":
            document = {**old, "status": document.get("status", {})}
        elif document.get("spec") != old.get("spec"):
            document["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
        return self._write(collection, key, old, document)

    def replace(self, collection: Collection, key: Key, body: bytes) -> bytes:
        old: Document = msgspec.json.decode(self.item(collection, key).render())
        document = msgspec.json.decode(body)
        if document["metadata"].get("resourceVersion") not in (None, old["metadata"]["resourceVersion"]):
            raise Refused(409, "Conflict", f'{collection.plural} "{key[1]}" has been modified')
        return self._write(collection, key, old, document)

    def delete(self, collection: Collection, key: Key, options: bytes) -> bytes:
        document: Document = msgspec.json.decode(self.item(collection, key).render())
        meta = document["metadata"]
        conditions = (msgspec.json.decode(options) if options else {}).get("preconditions") or {}
        for field, value in conditions.items():
            if value != meta[field]:
                raise Refused(409, "Conflict", f"the {field} in the precondition is {value}, and not {meta[field]}")
        if meta.get("finalizers"):
            meta.setdefault("deletionTimestamp", datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))
            return self._store(collection, key, document, "MODIFIED")
        return self._store(collection, key, document, "DELETED")

    def touch(self, collection: Collection, key: Key) -> None:
        """Publish a change of an object that changes only its resourceVersion."""
        item = collection.items[key]
        if item.pattern is None:
            self._store(collection, key, msgspec.json.decode(item.body), "MODIFIED")
            return
        item.version = self.next_version()
        collection.publish("MODIFIED", key[0], item.version, item.render())

    def remove(self, collection: Collection, key: Key) -> None:
        """Remove an object at once, as if KubeVirt had completed its deletion."""
        self._store(collection, key, msgspec.json.decode(self.item(collection, key).render()), "DELETED")

    def _write(self, collection: Collection, key: Key, old: Document, document: Document) -> bytes:
        if document == old:
            return encode(old)
        is_gone = document["metadata"].get("deletionTimestamp") and not document["metadata"].get("finalizers")
        return self._store(collection, key, document, "DELETED" if is_gone else "MODIFIED")

    def _store(self, collection: Collection, key: Key, document: Document, event: str) -> bytes:
        version = self.next_version()
        document["metadata"]["resourceVersion"] = str(version)
        body = encode(document)
        if event == "DELETED":
            del collection.items[key]
        else:
            item = collection.items.setdefault(key, Item(version))
            item.version, item.body, item.pattern = version, body, None
        collection.publish(event, key[0], version, body)
        return body


def _merged(old: Any, change: Any) -> Any:
    if not isinstance(change, dict):
        return change
    base = old if isinstance(old, dict) else {}
    merged = {key: value for key, value in base.items() if key not in change}
    return merged | {key: _merged(base.get(key), value) for key, value in change.items() if value is not None}


def _json_patched(old: Document, steps: list[Document]) -> Document:
    """Apply a JSON patch with the operations test, add, replace and remove."""
    document: Document = msgspec.json.decode(encode(old))
    for step in steps:
        *parents, last = [part.replace("~1", "/").replace("~0", "~") for part in step["path"].split("/")[1:]]
        target: Any = document
        for part in parents:
            target = target[int(part)] if isinstance(target, list) else target[part]
        index: Any = last
        if isinstance(target, list):
            index = len(target) if last == "-" else int(last)
        try:
            _apply(step, target, index)
        except (KeyError, IndexError) as error:
            raise Refused(422, "Invalid", f"the path {step['path']} does not exist") from error
    return document


def _apply(step: Document, target: Any, index: Any) -> None:
    match step["op"]:
        case "test":
            if target[index] != step["value"]:
                raise Refused(422, "Invalid", f"testing path {step['path']} failed")
        case "add" if isinstance(target, list):
            target.insert(index, step["value"])
        case "add" | "replace":
            target[index] = step["value"]
        case "remove":
            del target[index]
        case other:
            raise Refused(400, "BadRequest", f"the operation {other} is not served")
