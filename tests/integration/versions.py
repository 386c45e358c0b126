"""Collects all versions of objects while a test changes them."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sandbox.kubectl import kubectl_path
from tests.integration.controller_process import ReplicaSetNamespace, eventually


@contextmanager
def versions(objects: ReplicaSetNamespace, path: str) -> Iterator[list[dict[str, Any]]]:
    """Collect the versions of the objects at this path, the oldest first.

    The watch goes on from a list, so a late start loses no version. At the end of the block, the function waits for the
    newest version of each object.
    """

    def found() -> tuple[str, set[str]]:
        listed = objects.ask("GET", path)
        return listed["metadata"]["resourceVersion"], {each["metadata"]["resourceVersion"] for each in listed["items"]}

    begin, known = found()
    raw = f"{path}?watch=1&resourceVersion={begin}&timeoutSeconds=3600"
    command = [kubectl_path(), f"--kubeconfig={objects.plane.kubeconfig}", "get", "--raw", raw]
    seen: list[dict[str, Any]] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE) as watch:

        def follow() -> None:
            assert watch.stdout is not None
            for line in watch.stdout:
                seen.append(json.loads(line)["object"])
                known.add(seen[-1]["metadata"]["resourceVersion"])

        reader = threading.Thread(target=follow)
        reader.start()
        try:
            yield seen
            eventually(lambda: found()[1] <= known, what="the watch shows the newest versions")
        finally:
            watch.terminate()
            reader.join()
