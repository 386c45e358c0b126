"""Fills the replay server with the objects of a large cluster."""

from __future__ import annotations

import json
from collections.abc import Callable

from msgspec import Struct

from benchmarks import fleet
from benchmarks.replay.collection import Item
from benchmarks.replay.patterns import Pattern
from benchmarks.replay.state import State

KUBEVIRT, POOLS = "kubevirt.io", "pool.kubevirt.io"


Make = Callable[[int], bytes]
Texts = Callable[[int], dict[str, str]]


class Size(Struct, frozen=True):
    """The number of the objects in the cluster. Each VM of a pool runs and has a VMI."""

    sets: int
    vmis_of_set: int
    pools: int
    vms_of_pool: int

    @property
    def set_vmis(self) -> int:
        return self.sets * self.vmis_of_set

    @property
    def vms(self) -> int:
        return self.pools * self.vms_of_pool

    @property
    def objects(self) -> int:
        """All objects: owners, VMs, and the VMIs of both kinds. The revisions of the owners are left out."""
        return self.sets + self.pools + self.set_vmis + 2 * self.vms


def fill(state: State, size: Size) -> None:
    """Add all objects, with one resourceVersion each."""
    of_set, of_pool = size.vmis_of_set or 1, size.vms_of_pool or 1

    def grouped(number: int, count: int, prefix: str) -> dict[str, str]:
        group = number // count
        return {"namespace": fleet.namespace_of(group), "group": f"{prefix}-{group:05d}"}

    def add(group: str, plural: str, count: int, make: Make, texts: Texts) -> None:
        collection, pattern = state.collections[(group, plural)], Pattern(make, texts)
        for number in range(count):
            names = texts(number)
            key = (names["namespace"], names.get("name", names["group"]))
            collection.items[key] = Item(state.next_version(), pattern=pattern, number=number)

    add(
        KUBEVIRT,
        "virtualmachineinstancereplicasets",
        size.sets,
        lambda number: fleet.replica_set(size.vmis_of_set, number=number),
        lambda number: grouped(number, 1, "fleet") | {"uid": fleet.uid(1, number)},
    )
    add(
        POOLS,
        "virtualmachinepools",
        size.pools,
        lambda number: fleet.pool(size.vms_of_pool, number=number),
        lambda number: grouped(number, 1, "pool") | {"uid": fleet.uid(3, number)},
    )
    add(
        "apps",
        "controllerrevisions",
        size.pools,
        lambda number: _revision(number, size.vms_of_pool),
        lambda number: (
            grouped(number, 1, "pool")
            | {"name": f"pool-{number:05d}-1", "uid": fleet.uid(9, number), "owner": fleet.uid(3, number)}
        ),
    )
    add(
        "apps",
        "controllerrevisions",
        size.sets,
        fleet.set_revision,
        lambda number: (
            grouped(number, 1, "fleet")
            | {
                "name": fleet.set_revision_name(number),
                "hash": fleet.template_hash(number),
                "uid": fleet.uid(10, number),
                "owner": fleet.uid(1, number),
            }
        ),
    )
    add(
        KUBEVIRT,
        "virtualmachineinstances",
        size.set_vmis,
        lambda number: fleet.vmi_of_set(number, size=of_set),
        lambda number: (
            grouped(number, of_set, "fleet")
            | {
                "name": fleet.vmi_name(number, of_set),
                "uid": fleet.uid(2, number),
                "owner": fleet.uid(1, number // of_set),
                "hash": f"{number // of_set:010x}",
                "node": fleet.node_of(number),
            }
        ),
    )
    for plural, kind, make in (("virtualmachines", 4, _vm), ("virtualmachineinstances", 5, fleet.vmi_of_vm)):
        add(
            KUBEVIRT,
            plural,
            size.vms,
            lambda number, make=make: make(number, size=of_pool),  # type: ignore[misc]
            lambda number, kind=kind: (
                grouped(number, of_pool, "pool")  # type: ignore[misc]
                | {
                    "name": fleet.vm_name(number, of_pool),
                    "uid": fleet.uid(kind, number),
                    "owner": fleet.uid(3, number // of_pool) if kind == 4 else fleet.uid(4, number),
                    "disk": f"root-{number % of_pool}",
                    "node": fleet.node_of(number),
                    "revision": f"pool-{number // of_pool:05d}-1",
                }
            ),
        )


def _vm(number: int, *, size: int) -> bytes:
    """A VM as vmherd creates it: without the pool finalizer, because the pool keeps no disks."""
    document = json.loads(fleet.vm_of_pool(number, size=size))
    del document["metadata"]["finalizers"]
    return json.dumps(document, separators=(",", ":")).encode()


def _revision(number: int, vms: int) -> bytes:
    spec = json.loads(fleet.pool(vms, number=number))["spec"]
    return fleet.pool_revision(spec, number=number)
