"""Measures the cost of one VMI watch event.

The measured time begins with the bytes of the event and ends when the object is in the store. The measured memory is
the memory that the object then keeps.
"""

from __future__ import annotations

import time
import tracemalloc

from benchmarks.subject import running_vmi
from controller.kubevirt.resources import VMIS
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.replicaset.snapshot import VMI_INDEXES
from informers.store import Store
from informers.watch.parser import Applied, WatchParser

OBJECTS = 10_000
ROUNDS = 5


def measure_decoding() -> dict[str, float]:
    """Parse OBJECTS watch events of different VMIs and put them into an indexed store."""
    lines = [b'{"type":"ADDED","object":' + running_vmi(f"vmi-{number:06d}") + b"}\n" for number in range(OBJECTS)]
    decode_s, store_s = float("inf"), float("inf")
    for _ in range(ROUNDS):
        decode, store = _round(lines)
        decode_s, store_s = min(decode_s, decode), min(store_s, store)
    tracemalloc.start()
    kept = _fill(_parse(lines))
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return {
        "event_bytes": sum(map(len, lines)) / OBJECTS,
        "decode_us": decode_s / OBJECTS * 1e6,
        "store_us": store_s / OBJECTS * 1e6,
        "bytes_kept": held / len(kept),
    }


def _round(lines: list[bytes]) -> tuple[float, float]:
    started = time.process_time()
    vmis = _parse(lines)
    decoded = time.process_time()
    _fill(vmis)
    return decoded - started, time.process_time() - decoded


def _parse(lines: list[bytes]) -> list[VirtualMachineInstance]:
    parser = WatchParser(VMIS)
    return [event.object for line in lines for event in parser.feed(line) if isinstance(event, Applied)]


def _fill(vmis: list[VirtualMachineInstance]) -> Store[VirtualMachineInstance]:
    store: Store[VirtualMachineInstance] = Store(indexes=VMI_INDEXES)
    for vmi in vmis:
        store.apply(vmi)
    return store
