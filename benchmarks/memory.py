"""Measures the memory that one cached object needs, with its key and its entries in the indexes.

python -m benchmarks.memory [--objects 20000]
"""

from __future__ import annotations

import argparse
import gc
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

from benchmarks import fleet
from controller.assembly import Cache, merged_caches
from controller.kinds import KINDS
from controller.kubevirt.resources import CONTROLLER_REVISIONS, VMIS, VMS
from informers.resource import Resource
from informers.store import Store
from informers.watch.parser import Applied, WatchParser

OBJECTS = 20_000

SUBJECTS: dict[str, tuple[Resource[Any], Callable[[int], bytes]]] = {
    "VMI of a set": (VMIS, fleet.vmi_of_set),
    "VMI of a VM": (VMIS, fleet.vmi_of_vm),
    "VM of a pool": (VMS, fleet.vm_of_pool),
    "ControllerRevision of a set": (CONTROLLER_REVISIONS, fleet.set_revision),
    "ControllerRevision of KubeVirt": (CONTROLLER_REVISIONS, fleet.kubevirt_revision),
}


def measure_memory(objects: int = OBJECTS) -> dict[str, dict[str, float]]:
    """Measure each kind of object: its size as JSON, the memory in the cache, and the CPU time to decode and store."""
    caches = merged_caches(kind.module("wiring").CACHES for kind in KINDS)
    return {name: _measure(resource, caches[resource], make, objects) for name, (resource, make) in SUBJECTS.items()}


def _measure(resource: Resource[Any], cache: Cache, make: Callable[[int], bytes], objects: int) -> dict[str, float]:
    lines = [b'{"type":"ADDED","object":' + make(number) + b"}\n" for number in range(objects)]
    started = time.process_time()
    _fill(resource, cache, lines)
    seconds = time.process_time() - started
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    store = _fill(resource, cache, lines)
    gc.collect()
    held = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return {
        "event_bytes": sum(map(len, lines)) / objects,
        "bytes_kept": held / objects,
        "us": seconds / objects * 1e6,
        "kept": len(store),
    }


def _fill(resource: Resource[Any], cache: Cache, lines: list[bytes]) -> Store[Any]:
    """Return a store with the objects of these watch events, as the informer would fill it."""
    store: Store[Any] = Store(indexes=cache.indexes)
    parser = WatchParser(resource)
    for line in lines:
        for event in parser.feed(line):
            assert isinstance(event, Applied), event
            obj = event.object if cache.transform is None else cache.transform(event.object)
            if obj is not None:
                store.apply(obj)
    return store


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.memory", description="Measure the memory of the caches."
    )
    parser.add_argument("--objects", type=int, default=OBJECTS, help=f"objects of each kind (default {OBJECTS})")
    arguments = parser.parse_args()
    for name, each in measure_memory(arguments.objects).items():
        print(
            f"{name:32} event {each['event_bytes']:6.0f} B   cached {each['bytes_kept']:6.0f} B   "
            f"decode and store {each['us']:5.1f} us"
        )


if __name__ == "__main__":
    main()
