"""Plays KubeVirt's and CDI's part on a cluster without virtual machines.

    python -m sandbox.simulator --kubeconfig FILE

Every kind that is simulated is a `Part`: a resource and the behavior that decides an object's next step. What is around
an object, such as a VM's VMI and its disks, is read from the caches of the other kinds, and whatever changes there
wakes the object. All that is known of an object is in the cluster, so a simulator may be stopped, killed and started
again at any time. It outlives the API server, and begins with a kind when its definition is installed.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from informers.client import ApiClient, ConfigurationError, load_credentials, open_client
from informers.informer import SharedInformer
from informers.meta import ObjectKey
from informers.resource import Resource
from informers.store import ALL_NAMESPACES, Added, Change, Removed, Updated
from sandbox import behavior, vm_behavior
from sandbox.behavior import Obstacle
from sandbox.datavolumes import (
    CLAIMS,
    DATA_VOLUMES,
    SimulatedClaim,
    SimulatedDataVolume,
    claim_step,
    is_bound,
    volume_step,
)
from sandbox.part import Part
from sandbox.step import Step
from sandbox.vm_status import Around
from sandbox.vmis import PVC_NOT_FOUND, VMIS, SimulatedVMI, claims_of
from sandbox.vms import VMS, SimulatedVM, storage_of

USER_AGENT = "vmherd-simulator"
WORKERS = 16
"""Writes under way at once, for each kind. More would only take the API server's time from whoever is being tested."""

STARTING_POLL_S = 0.05
_STORAGE = "storage"


async def run(
    kubeconfig: str | os.PathLike[str], *, namespaces: Iterable[str] = (ALL_NAMESPACES,), workers: int = WORKERS
) -> None:
    """Simulate what is in these namespaces, until cancelled.

    Raises ConfigurationError when the kubeconfig cannot be used; a server that does not answer is waited for.
    """
    credentials = await load_credentials(os.fspath(kubeconfig))
    async with open_client(credentials, user_agent=USER_AGENT, max_inflight=None) as client:
        await _Cluster(client, tuple(namespaces)).run(workers)


class _Cluster:
    """The kinds that are simulated, and what they have to do with each other."""

    def __init__(self, client: ApiClient, namespaces: tuple[str, ...]) -> None:
        def follow(resource: Resource[Any], **indexes: Any) -> SharedInformer[Any]:
            return SharedInformer(resource, client, namespaces=namespaces, indexes=indexes, chance=_no_spread)

        self._vms: SharedInformer[SimulatedVM] = follow(VMS, storage=_storage_of_vm)
        self._vmis: SharedInformer[SimulatedVMI] = follow(VMIS, storage=_storage_of_vmi)
        self._volumes: SharedInformer[SimulatedDataVolume] = follow(DATA_VOLUMES)
        self._claims: SharedInformer[SimulatedClaim] = follow(CLAIMS)
        informers: dict[Resource[Any], SharedInformer[Any]] = {
            VMS: self._vms,
            VMIS: self._vmis,
            DATA_VOLUMES: self._volumes,
            CLAIMS: self._claims,
        }
        self._informers = tuple(informers.values())
        self._vm_part = Part(VMS, self._vm_step, client, informers)
        self._vmi_part = Part(VMIS, self._vmi_step, client, informers)
        self._volume_part = Part(DATA_VOLUMES, self._volume_step, client, informers)
        self._claim_part = Part(CLAIMS, self._claim_step, client, informers)
        self._vmis.add_handler(self._note_vmi)
        self._volumes.add_handler(self._note_volume)
        self._claims.add_handler(self._note_claim)

    async def run(self, workers: int) -> None:
        """Follow and act, for ever. Nobody acts before all that exists has been seen."""
        async with asyncio.TaskGroup() as group:
            for informer in self._informers:
                group.create_task(informer.run(), name=f"simulator-{informer.resource.plural}-informer")
            # That a kind is missing has no event; it is only asked for while the simulator starts.
            while not all(informer.synced.is_set() or informer.missing for informer in self._informers):  # noqa: ASYNC110
                await asyncio.sleep(STARTING_POLL_S)
            for part in (self._vm_part, self._vmi_part, self._volume_part, self._claim_part):
                group.create_task(part.run(workers), name=f"simulator-{part.name}")
            # VMs may have been waiting for there to be DataVolumes at all.
            await self._volumes.synced.wait()
            self._vm_part.wake_all()

    def _vm_step(self, vm: SimulatedVM, now: datetime, _: datetime) -> Step:
        key = vm.metadata.key
        names = {name: ObjectKey(key.namespace, name) for name in storage_of(vm)}
        volumes = {name: self._volumes.store.get(target) for name, target in names.items()}
        claims = {name: self._claims.store.get(target) for name, target in names.items()}
        around = Around(
            vmi=self._vmis.store.get(key),
            volumes={name: volume for name, volume in volumes.items() if volume is not None},
            claims={name: claim for name, claim in claims.items() if claim is not None},
            serves_data_volumes=self._volumes.synced.is_set() and not self._volumes.missing,
        )
        return vm_behavior.next_step(vm, around, now)

    def _vmi_step(self, vmi: SimulatedVMI, now: datetime, first_seen: datetime) -> Step:
        claims = [self._claims.store.get(ObjectKey(vmi.metadata.namespace, name)) for name in claims_of(vmi)]
        obstacle = None
        if any(claim is None for claim in claims):
            obstacle = Obstacle(PVC_NOT_FOUND)
        elif any(claim is not None and not is_bound(claim) for claim in claims):
            obstacle = Obstacle()
        return behavior.next_step(vmi, now, first_seen, obstacle)

    def _volume_step(self, volume: SimulatedDataVolume, now: datetime, first_seen: datetime) -> Step:
        return volume_step(volume, self._claims.store.get(volume.metadata.key), now, first_seen)

    def _claim_step(self, claim: SimulatedClaim, _now: datetime, _first_seen: datetime) -> Step:
        return claim_step(claim, self._vmis.store.by_index(_STORAGE, str(claim.metadata.key)))

    def _note_vmi(self, change: Change[SimulatedVMI]) -> None:
        vmi = _subject(change)
        key = vmi.metadata.key
        self._vm_part.wake([key])
        self._claim_part.wake(
            target
            for target in (ObjectKey(key.namespace, name) for name in claims_of(vmi))
            if (claim := self._claims.store.get(target)) is not None and claim.metadata.deletion_timestamp is not None
        )

    def _note_volume(self, change: Change[SimulatedDataVolume]) -> None:
        self._wake_users(self._vm_part, self._vms, _subject(change).metadata.key)

    def _note_claim(self, change: Change[SimulatedClaim]) -> None:
        key = _subject(change).metadata.key
        self._volume_part.wake([key])
        self._wake_users(self._vm_part, self._vms, key)
        self._wake_users(self._vmi_part, self._vmis, key)

    @staticmethod
    def _wake_users(part: Part[Any], informer: SharedInformer[Any], storage: ObjectKey) -> None:
        part.wake(user.metadata.key for user in informer.store.by_index(_STORAGE, str(storage)))


def _subject(change: Change[Any]) -> Any:
    match change:
        case Added(new=subject) | Updated(new=subject) | Removed(last_known=subject):
            return subject


def _storage_of_vm(vm: SimulatedVM) -> Iterator[str]:
    """For an index: the DataVolumes and PVCs that matter to it."""
    return (str(ObjectKey(vm.metadata.namespace, name)) for name in storage_of(vm))


def _storage_of_vmi(vmi: SimulatedVMI) -> Iterator[str]:
    return (str(ObjectKey(vmi.metadata.namespace, name)) for name in claims_of(vmi))


def _no_spread() -> float:
    """For the informer's delays, which spread many clients of one server: alone on loopback, each can be the least."""
    return 0.0


def main() -> None:
    """Run by itself, until Ctrl-C or SIGTERM ends the process."""
    # Logging is the program's to set up; as a part of another program, the simulator has that one's.
    from controller.logs import configure  # noqa: PLC0415

    parser = argparse.ArgumentParser(prog="python -m sandbox.simulator", description="Simulate KubeVirt's VMs.")
    parser.add_argument("--kubeconfig", required=True, help="the cluster to simulate them on, and who to be there")
    parser.add_argument("--log-level", default="info", choices=("debug", "info", "warning", "error"))
    arguments = parser.parse_args()
    configure(arguments.log_level, "auto")
    try:
        asyncio.run(run(arguments.kubeconfig))
    except ConfigurationError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
