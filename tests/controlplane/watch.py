"""Collects all versions of objects while a test changes them, so that a test also sees short states."""

import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from sandbox.kubectl import kubectl_path
from tests.controlplane.documents import Document
from tests.controlplane.namespace import Namespace
from tests.controlplane.objects import Objects
from tests.controlplane.waits import eventually


@contextmanager
def watched(namespace: Namespace, objects: Objects) -> Iterator[list[Document]]:
    """Watch these objects of the namespace while the block runs. The list gets their versions, the oldest first.

    The watch goes on from a list, so a late start loses no version. At the end of the block, the function waits for the
    newest version of each object.
    """
    listed = objects.send("GET")
    seen: list[Document] = []
    raw = f"{objects.path}?watch=1&resourceVersion={listed['metadata']['resourceVersion']}&timeoutSeconds=3600"
    command = [kubectl_path(), f"--kubeconfig={namespace.plane.kubeconfig}", "get", "--raw", raw]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as watch:

        def follow() -> None:
            assert watch.stdout is not None
            for line in watch.stdout:
                seen.append(json.loads(line)["object"])

        reader = threading.Thread(target=follow)
        reader.start()
        try:
            yield seen
            assert watch.poll() is None, "the watch ended before the test did"
            newest = {*map(_version, objects().values())}
            eventually(
                lambda: newest <= {*map(_version, (*listed["items"], *seen))},
                what="the watch shows the newest versions",
            )
        finally:
            watch.terminate()
            reader.join()


def _version(item: Document) -> str:
    return str(item["metadata"]["resourceVersion"])
