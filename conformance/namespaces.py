"""Creates the namespaces of a run, and removes them at its end."""

import asyncio
from typing import Final

from conformance.api import Api
from conformance.case import Document
from conformance.templates import HOLD, POOL_FINALIZER
from informers.errors import Conflict, NotFound

LABEL: Final = "vmherd.dev/conformance"
"""The label of each namespace of the suite. Its value is the id of the run."""

PREFIX: Final = "vmherd-conformance-"
GONE_S: Final = 120.0
"""The maximum wait for the deletion of all namespaces at the end of a run."""

PATIENCE_S: Final = 30.0
"""A time in seconds after the start of the removal. If a namespace still exists after this time, the run removes the
finalizers from the pools and VMs in the namespace.
"""

POLL_S: Final = 0.5
FINALIZED: Final = ("pool.kubevirt.io", "pool.vmherd.dev")


class Namespaces:
    """The namespaces of one run. With `keep`, they are not removed."""

    def __init__(self, api: Api, run: str, *, keep: bool = False) -> None:
        self._api = api
        self._keep = keep
        self.selector = f"{LABEL}={run}"
        self._labels = {LABEL: run}

    async def create(self, case: str) -> str:
        metadata = {
            "generateName": PREFIX,
            "labels": self._labels,
            "annotations": {"vmherd.dev/conformance-case": case},
        }
        made = await self._api.create("/api/v1/namespaces", {"metadata": metadata})
        return str(made["metadata"]["name"])

    async def delete(self, name: str) -> None:
        """Request the deletion of a namespace. The deletion completes later."""
        if not self._keep:
            await self._api.delete(f"/api/v1/namespaces/{name}")

    async def remove_all(self) -> list[str]:
        """Delete all namespaces of the run, and wait until they are gone.

        Return the names of the remaining namespaces.
        """
        if self._keep:
            return []
        loop = asyncio.get_running_loop()
        began = loop.time()
        while True:
            left = await self._api.items("/api/v1/namespaces", self.selector)
            names = [namespace["metadata"]["name"] for namespace in left]
            if not names or loop.time() - began > GONE_S:
                return names
            for namespace in left:
                if "deletionTimestamp" not in namespace["metadata"]:
                    await self._api.delete(f"/api/v1/namespaces/{namespace['metadata']['name']}")
            if loop.time() - began > PATIENCE_S:
                for name in names:
                    await self._remove_finalizers(name)
            await asyncio.sleep(POLL_S)

    async def _remove_finalizers(self, namespace: str) -> None:
        """Remove the suite's finalizer and the pool finalizer from all objects. Then the namespace can be deleted."""
        kubevirt = f"/apis/kubevirt.io/v1/namespaces/{namespace}"
        pools = [f"/apis/{group}/v1beta1/namespaces/{namespace}/virtualmachinepools" for group in FINALIZED]
        for path in (*pools, f"{kubevirt}/virtualmachines", f"{kubevirt}/virtualmachineinstances"):
            try:
                items = await self._api.items(path)
            except NotFound:
                continue
            for item in items:
                await self._remove_finalizers_of(f"{path}/{item['metadata']['name']}", item)

    async def _remove_finalizers_of(self, path: str, item: Document) -> None:
        before = item["metadata"].get("finalizers") or []
        after = [each for each in before if each not in (HOLD, POOL_FINALIZER)]
        if after == before:
            return
        version = item["metadata"]["resourceVersion"]
        try:
            await self._api.merge(path, {"metadata": {"finalizers": after, "resourceVersion": version}})
        except (NotFound, Conflict):
            return  # the next round reads the object again
