"""The loop of the simulator on the fake API server, with a cache that is out of date."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from informers.meta import ObjectKey, controller_of
from sandbox.datavolumes import DATA_VOLUMES, SimulatedDataVolume
from sandbox.kind_simulator import KindSimulator
from sandbox.step import Step, adoption
from sandbox.vms import VMS, SimulatedVM
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.caches import LaggingCache

VM, DISK = ObjectKey("default", "vm"), ObjectKey("default", "disk")


class CacheInformer(LaggingCache[Any]):
    """An informer whose cache follows the fake API server only when the test says so."""

    def add_handler(self, handler: Any) -> None:
        self._handler = handler


def adopt(server: FakeApiServer, vm: SimulatedVM) -> Step:
    disk: SimulatedDataVolume | None = server.find(DATA_VOLUMES, DISK)
    if disk is None or controller_of(disk.metadata) is not None:
        return Step()
    return Step(effects=(adoption(DATA_VOLUMES, disk.metadata, VMS, vm.metadata, checked=True),))


async def simulate(server: FakeApiServer, vms: CacheInformer) -> None:
    """Process the VM of the cache once."""
    client: Any = server
    informers: Any = {VMS: vms, DATA_VOLUMES: CacheInformer(server, DATA_VOLUMES)}
    simulator = KindSimulator(VMS, lambda vm, _now, _seen: adopt(server, vm), client, informers)
    simulator.enqueue([VM])
    with suppress(TimeoutError):
        async with asyncio.timeout(1):
            await simulator.run(1)


@pytest.mark.looptime
@pytest.mark.parametrize("is_deleted", [False, True])
async def test_a_disk_is_not_adopted_for_a_vm_that_is_deleted_but_still_alive_in_the_cache(is_deleted: bool) -> None:
    server = FakeApiServer()
    server.put(VMS, {"metadata": {"name": "vm", "namespace": "default", "finalizers": ["test/hold"]}, "spec": {}})
    server.put(DATA_VOLUMES, {"metadata": {"name": "disk", "namespace": "default"}, "spec": {}})
    vms = CacheInformer(server, VMS)
    if is_deleted:
        server.remove(VMS, VM)
    await simulate(server, vms)
    owners = server.document(DATA_VOLUMES, DISK)["metadata"].get("ownerReferences") or []
    assert [owner["name"] for owner in owners] == ([] if is_deleted else ["vm"])
