"""Collects all versions of objects while a test changes them, so that a test also sees short states."""

import json
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from sandbox.kubectl import kubectl_path
from tests.controlplane.documents import Document, is_leaving, is_ready
from tests.controlplane.namespace import Namespace, Objects
from tests.controlplane.waits import eventually


class Seen:
    """The objects at the start of the watch by name, and the events of the watch, the oldest first."""

    def __init__(self, before: dict[str, Document]) -> None:
        self.before = before
        self.events: list[Document] = []

    @property
    def versions(self) -> list[Document]:
        return [event["object"] for event in self.events]

    def least_ready(self) -> dict[str, int]:
        """The smallest number of ready objects at any time, by the pool in their names. A terminating object does not
        count.
        """
        ready = {name for name, item in self.before.items() if _serves(item)}
        least = Counter(map(_pool_of, ready))
        for event in self.events:
            name = event["object"]["metadata"]["name"]
            ready.discard(name)
            if event["type"] != "DELETED" and _serves(event["object"]):
                ready.add(name)
            pool = _pool_of(name)
            least[pool] = min(least[pool], sum(_pool_of(each) == pool for each in ready))
        return dict(least)


@contextmanager
def watched(namespace: Namespace, objects: Objects) -> Iterator[Seen]:
    """Watch these objects of the namespace while the block runs.

    The watch goes on from a list, so a late start loses no version. At the end of the block, the function waits for the
    newest version of each object.
    """
    listed = objects.send("GET")
    seen = Seen({item["metadata"]["name"]: item for item in listed["items"]})
    raw = f"{objects.path}?watch=1&resourceVersion={listed['metadata']['resourceVersion']}&timeoutSeconds=3600"
    command = [kubectl_path(), f"--kubeconfig={namespace.plane.kubeconfig}", "get", "--raw", raw]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as watch:

        def follow() -> None:
            assert watch.stdout is not None
            for line in watch.stdout:
                seen.events.append(json.loads(line))

        reader = threading.Thread(target=follow)
        reader.start()
        try:
            yield seen
            assert watch.poll() is None, "the watch ended before the test did"
            newest = {_version(item) for item in objects().values()}
            known = {_version(item) for item in seen.before.values()}
            eventually(
                lambda: newest <= known | {_version(item) for item in seen.versions},
                what="the watch shows the newest versions",
            )
        finally:
            watch.terminate()
            reader.join()


def _version(item: Document) -> str:
    return str(item["metadata"]["resourceVersion"])


def _serves(item: Document) -> bool:
    return not is_leaving(item) and is_ready(item)


def _pool_of(name: str) -> str:
    return name.rpartition("-")[0]
