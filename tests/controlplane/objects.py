"""A client of the API server for the objects of one kind in one namespace. It is the administrator."""

import json
from typing import Any

from sandbox.admin import Admin
from tests.controlplane.documents import Document

MERGE = "application/merge-patch+json"
STEPS = "application/json-patch+json"
START_REVISION = "revision-start-vm-"
"""The names of the ControllerRevisions that KubeVirt creates at a start of a VM begin with this text."""


class Objects:
    """The objects of one kind in a namespace. A call returns all of them by name."""

    def __init__(self, admin: Admin, path: str, selector: str = "") -> None:
        self.path = path
        self._admin = admin
        self._selector = f"?labelSelector={selector}" if selector else ""

    def __call__(self) -> dict[str, Document]:
        items = self.send("GET", query=self._selector)["items"]
        found = {item["metadata"]["name"]: item for item in items}
        return {name: item for name, item in found.items() if not name.startswith(START_REVISION)}

    def get(self, name: str) -> Document:
        return self.send("GET", name)

    def make(self, document: Document) -> Document:
        return self.send("POST", body=document)

    def change(self, name: str, change: Document) -> Document:
        """Apply a JSON merge patch."""
        return self.send("PATCH", name, body=change)

    def steps(self, name: str, *steps: Document) -> Document:
        """Apply a JSON patch."""
        return json.loads(self._admin.send("PATCH", f"{self.path}/{name}", json.dumps(steps).encode(), STEPS))

    def set_finalizers(self, name: str, *finalizers: str) -> None:
        self.change(name, {"metadata": {"finalizers": list(finalizers)}})

    def delete(self, name: str = "") -> None:
        """Delete an object, or all objects."""
        self.send("DELETE", name)

    def send(self, method: str, name: str = "", *, query: str = "", body: Document | None = None) -> Any:
        """Send a request for an object, or for the collection. Raises Rejected."""
        path = f"{self.path}/{name}" if name else self.path
        encoded = None if body is None else json.dumps(body).encode()
        content_type = MERGE if method == "PATCH" else "application/json" if encoded else ""
        return json.loads(self._admin.send(method, path + query, encoded, content_type))
