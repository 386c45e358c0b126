"""Measures the CPU time after the change of one member, in sets and pools of different sizes.

    python -m benchmarks.changes [--sizes 10 1000 10000 100000]

Each change makes one VMI ready or not ready. The measured time contains the change of the cache, the snapshot, the plan
and the status. It should hardly depend on the size, up to 10,000 members.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from msgspec.structs import replace

from benchmarks.planning import NOW, pool_rules, set_rules
from controller.kubevirt.resources import VMIS
from controller.kubevirt.vmi_types import VirtualMachineInstance
from informers.store import Store

SIZES = (10, 1_000, 10_000, 100_000)
CHANGES = 200
ROUNDS = 5


def measure_changes(size: int) -> dict[str, float]:
    """Return the CPU time of one change in microseconds, for a set and for a pool of this size."""
    return {"set": _measure(*set_rules(size), size), "pool": _measure(*pool_rules(size), size)}


def _measure(rules: Any, owner: Any, vmis: Store[VirtualMachineInstance], size: int) -> float:
    key = owner.metadata.key

    def reconcile() -> None:
        snapshot = rules.take_snapshot(key, now=NOW, settled=True)
        rules.plan(snapshot)
        rules.next_status(snapshot, ())

    reconcile()
    changed = vmis.values()[:: max(size // CHANGES, 1)][:CHANGES]
    times = []
    for number in range(ROUNDS):
        new = [_with_readiness(vmi, "False" if number % 2 == 0 else "True", version=10**6 + number) for vmi in changed]
        # One VMI at a time is not ready.
        old = [_with_readiness(vmi, "True", version=2 * 10**6 + number) for vmi in changed]
        for pair in zip(new, old, strict=True):
            times += [_seconds(vmis, vmi, reconcile) for vmi in pair]
    return median(times) * 1e6


def _seconds(vmis: Store[VirtualMachineInstance], vmi: VirtualMachineInstance, reconcile: Callable[[], None]) -> float:
    started = time.thread_time()
    vmis.apply(vmi)
    reconcile()
    return time.thread_time() - started


def _with_readiness(vmi: VirtualMachineInstance, ready: str, *, version: int) -> VirtualMachineInstance:
    """Return a later state of the VMI."""
    assert vmi.status is not None
    conditions = tuple(
        replace(each, status=ready) if each.type == "Ready" else each for each in vmi.status.conditions or ()
    )
    metadata = replace(vmi.metadata, resource_version=str(version))
    return replace(vmi, metadata=metadata, status=replace(vmi.status, conditions=conditions))


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.changes", description="Measure the CPU time after the change of one member."
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="members of the set or pool")
    print(f"one change in {VMIS.plural}")
    for size in parser.parse_args().sizes:
        print(f"{size:7}" + "".join(f"  {kind} {us:9.0f} us" for kind, us in measure_changes(size).items()), flush=True)


if __name__ == "__main__":
    main()
