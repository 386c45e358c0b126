"""Counts the ready VMIs of a pool at each moment of a change."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from sandbox.kubectl import kubectl_path
from tests.integration.controller_process import eventually
from tests.integration.pool_namespace import PoolNamespace, is_vm_ready


class Availability:
    """Counts the ready VMIs of each pool after each change of a VMI.

    `least` is the smallest number of ready VMIs, by the pool's name. A terminating VMI does not count.
    """

    def __init__(self, ready: Iterable[str]) -> None:
        self._ready: dict[str, set[str]] = {}
        for name in ready:
            self._ready.setdefault(_pool_of(name), set()).add(name)
        self.least = {pool: len(names) for pool, names in self._ready.items()}
        self.versions: set[str] = set()

    def note(self, change: dict[str, Any]) -> None:
        vmi = change["object"]
        self.versions.add(vmi["metadata"]["resourceVersion"])
        name = vmi["metadata"]["name"]
        pool = _pool_of(name)
        ready = self._ready.setdefault(pool, set())
        if change["type"] != "DELETED" and _serves(vmi):
            ready.add(name)
        else:
            ready.discard(name)
        self.least[pool] = min(self.least.get(pool, 0), len(ready))


@contextmanager
def watched(pools: PoolNamespace) -> Iterator[Availability]:
    path = f"/apis/kubevirt.io/v1/namespaces/{pools.namespace}/virtualmachineinstances"
    listed = json.loads(pools.kubectl("get", "--raw", path).stdout)
    availability = Availability(vmi["metadata"]["name"] for vmi in listed["items"] if _serves(vmi))
    availability.versions |= _versions(listed["items"])
    raw = f"{path}?watch=1&resourceVersion={listed['metadata']['resourceVersion']}&timeoutSeconds=3600"
    command = [kubectl_path(), "--kubeconfig", str(pools.plane.kubeconfig), "get", "--raw", raw]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:

        def follow() -> None:
            assert process.stdout is not None
            for line in process.stdout:
                availability.note(json.loads(line))

        reader = threading.Thread(target=follow)
        reader.start()
        try:
            yield availability
            assert process.poll() is None, "the watch ended before the test did"
            newest = _versions(pools.vmis().values())
            eventually(lambda: newest <= availability.versions, what="the watch shows all changes of the block")
        finally:
            process.terminate()
            reader.join()


def _serves(vmi: dict[str, Any]) -> bool:
    return "deletionTimestamp" not in vmi["metadata"] and is_vm_ready(vmi)


def _versions(vmis: Iterable[dict[str, Any]]) -> set[str]:
    return {vmi["metadata"]["resourceVersion"] for vmi in vmis}


def _pool_of(name: str) -> str:
    return name.rpartition("-")[0]
