"""An API server in memory for the conformance suite: it stores JSON objects of any kind by their URL paths."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from conformance.api import Api
from conformance.namespace import Conditions, Subject
from conformance.replica_sets import ReplicaSets
from informers.errors import NotFound, StatusError
from tests.fakes.answers import Answering, Call
from tests.fakes.patches import merge_patch

SUBJECT = Subject("kubevirt.io", "v1", "virtualmachineinstancereplicasets", "VirtualMachineInstanceReplicaSet")
NAMESPACES = "/api/v1/namespaces"


class StoredObjects(Answering):
    """Objects by path. Objects with finalizers stay after their deletion. `on_request` may raise an ApiError."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.requests: list[tuple[str, str]] = []
        self.accepted: list[str] = []
        self.on_request: Callable[[str, str], None] = lambda method, path: None
        self._number = 0

    @property
    def api(self) -> Api:
        return Api(self)  # type: ignore[arg-type]  the fake has only the methods that the tests need

    def put(self, path: str, document: dict[str, Any]) -> None:
        """Store an object. The last part of the path becomes the object's name."""
        metadata = {"name": path.rpartition("/")[2], "resourceVersion": "1", **document.get("metadata", {})}
        self.objects[path] = {**document, "metadata": metadata}

    def under(self, path: str) -> list[dict[str, Any]]:
        return [document for key, document in self.objects.items() if key.rpartition("/")[0] == path]

    async def answer(self, call: Call) -> bytes:
        self.requests.append((call.method, call.path))
        self.accepted.append(call.accept)
        self.on_request(call.method, call.path)
        document = json.loads(call.body) if call.body else {}
        answers = {"GET": self._get, "POST": self._post, "PATCH": self._patch, "DELETE": self._delete}
        return json.dumps(answers[call.method](call.path, document, call.params)).encode()

    def _get(self, path: str, document: Any, params: Mapping[str, str]) -> Any:
        if path in self.objects:
            return self.objects[path]
        if path.count("/") % 2 == 0 and path.startswith("/api/"):  # an object, and not a collection
            raise _missing(path)
        if path.startswith("/apis/") and path.count("/") in (2, 3, 7):
            raise _missing(path)
        key, _, value = params.get("labelSelector", "").partition("=")
        items = self.under(path)
        if key:
            items = [item for item in items if item["metadata"].get("labels", {}).get(key) == value]
        return {"items": items}

    def _post(self, path: str, document: Any, params: Mapping[str, str]) -> Any:
        self._number += 1
        metadata = document["metadata"]
        name = metadata.get("name") or f"{metadata['generateName']}{self._number}"
        if f"{path}/{name}" in self.objects:
            raise StatusError(f"{name} already exists", code=409)
        uid = {"name": name, "uid": f"uid-{self._number}"}
        self.put(f"{path}/{name}", {**document, "metadata": {**metadata, **uid}})
        return self.objects[f"{path}/{name}"]

    def _patch(self, path: str, document: Any, params: Mapping[str, str]) -> Any:
        if path not in self.objects:
            raise _missing(path)
        changed = merge_patch(self.objects[path], document)
        self.objects[path] = changed
        self._collect(path)
        return changed

    def _delete(self, path: str, document: Any, params: Mapping[str, str]) -> Any:
        if path not in self.objects:
            raise _missing(path)
        found = self.objects[path]
        found["metadata"]["deletionTimestamp"] = "2026-08-01T12:00:00Z"
        self._collect(path)
        return {}

    def _collect(self, path: str) -> None:
        """Remove an object that is being deleted and has no finalizer. A namespace must also be empty."""
        metadata = self.objects[path]["metadata"]
        inside = [key for key in self.objects if key != path and f"/namespaces/{path.rpartition('/')[2]}/" in key]
        if "deletionTimestamp" in metadata and not metadata.get("finalizers") and not inside:
            del self.objects[path]
            if path.startswith("/apis/"):
                self._collect(f"{NAMESPACES}/{path.split('/namespaces/')[1].partition('/')[0]}")


def _missing(path: str) -> NotFound:
    return NotFound(f"{path} not found", code=404, reason="NotFound")


def case_namespace(server: StoredObjects, *, patience: float = 1.0) -> ReplicaSets:
    return ReplicaSets(server.api, "here", SUBJECT, Conditions(image="image", patience=patience))
