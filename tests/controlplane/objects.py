"""A client of the API server for the objects of one kind in one namespace. It is the administrator."""

import json
from typing import Any

from sandbox.admin import Admin, Rejected
from tests.controlplane.documents import HOLD, Document, finalizers_of
from tests.controlplane.waits import eventually

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

    def annotate(self, name: str, **marks: str | None) -> None:
        """Set annotations: `deletion_cost="5"` sets `vmherd.dev/deletion-cost` to `5`."""
        texts = {f"vmherd.dev/{mark.replace('_', '-')}": value for mark, value in marks.items()}
        self.change(name, {"metadata": {"annotations": texts}})

    def set_finalizers(self, name: str, *finalizers: str) -> None:
        self.change(name, {"metadata": {"finalizers": list(finalizers)}})

    def delete(self, name: str = "") -> None:
        """Delete an object, or all objects."""
        self.send("DELETE", name)

    def hold(self, name: str) -> None:
        """Add a foreign finalizer. A deleted object then stays until `let_go`."""
        self._change_hold(name, HOLD)

    def let_go(self, name: str) -> None:
        """Remove the finalizer that `hold` added."""
        self._change_hold(name)

    def _change_hold(self, name: str, *holds: str) -> None:
        def is_done() -> bool:
            found = self.get(name)
            finalizers = [*(each for each in finalizers_of(found) if each != HOLD), *holds]
            meta = {"finalizers": finalizers, "resourceVersion": found["metadata"]["resourceVersion"]}
            try:
                self.change(name, {"metadata": meta})
            except Rejected:
                return False  # another client changed the object
            return True

        eventually(is_done, what=f"the foreign finalizers of {name} are {holds}")

    def send(self, method: str, name: str = "", *, query: str = "", body: Document | None = None) -> Any:
        """Send a request for an object, or for the collection. Raises Rejected."""
        path = f"{self.path}/{name}" if name else self.path
        encoded = None if body is None else json.dumps(body).encode()
        content_type = MERGE if method == "PATCH" else "application/json" if encoded else ""
        return json.loads(self._admin.send(method, path + query, encoded, content_type))
