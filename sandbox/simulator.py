"""This program simulates KubeVirt and CDI on a cluster that has no real virtual machines.

    python -m sandbox.simulator --kubeconfig FILE

Each simulated kind has a `KindSimulator`. A `KindSimulator` has a behavior: a function that returns the next step for
an object of the kind. The behavior reads related objects, such as the VMI and the disks of a VM, from the caches of the
other kinds. When a related object changes, the behavior is called again. All state is in the cluster, so the simulator
can be stopped, killed and started again at any time. The simulator continues after a restart of the API server. If the
CRD of a kind is installed later, the simulation of the kind starts then.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Coroutine, Iterable, Iterator
from contextlib import AsyncExitStack
from datetime import datetime
from typing import Any

import msgspec

from informers.http.client import ApiClient, ConfigurationError, load_credentials, open_client
from informers.informer import SharedInformer
from informers.meta import ObjectKey
from informers.resource import Resource
from informers.store import ALL_NAMESPACES, Added, Change, Removed, Updated
from sandbox import behavior, vm_behavior
from sandbox.behavior import Obstacle
from sandbox.claim_behavior import claim_step, is_growing
from sandbox.claims import CLAIMS, SimulatedClaim, is_bound, waiting_phase
from sandbox.datavolumes import DATA_VOLUMES, SUCCEEDED, SimulatedDataVolume, phase_of_volume, volume_step
from sandbox.kind_simulator import KindSimulator
from sandbox.launchers.simulator import LauncherSimulator
from sandbox.ownership import is_controlled_by
from sandbox.persistent_volumes import PERSISTENT_VOLUMES, PersistentVolume, key_of, persistent_volume_step
from sandbox.settings import DEFAULT, DETAILS, SimulationSettings, scale_of
from sandbox.step import Step
from sandbox.virt_api import server
from sandbox.virt_api.account import create_token, kubeconfig_with
from sandbox.vm_revisions import REVISIONS, SimulatedRevision
from sandbox.vm_status import RelatedObjects
from sandbox.vmis import PVC_NOT_FOUND, VMIS, SimulatedVMI, claims_of
from sandbox.vms import VMS, SimulatedVM, storage_of

USER_AGENT = "vmherd-simulator"
WORKERS = 16
"""The number of workers for each kind. Each worker sends one request at a time.

The number is small, because many workers slow down the controller under test.
"""

STARTING_POLL_S = 0.05
"""The seconds between two checks of the caches during the start."""

_STORAGE = "storage"
_OWNER = "owner"


async def run(
    kubeconfig: str | os.PathLike[str],
    *,
    namespaces: Iterable[str] = (ALL_NAMESPACES,),
    workers: int = WORKERS,
    defaults: SimulationSettings = DEFAULT,
    virt_api: bool = False,
    webhooks: bool = False,
    launchers: bool = False,
) -> None:
    """Simulate the objects in these namespaces until the task is cancelled.

    `defaults` are the settings of objects without annotations. If `virt_api` is True, serve the subresources of VMs in
    the whole cluster. If `virt_api` and `webhooks` are True, also serve KubeVirt's webhooks. The webhooks treat users
    and KubeVirt differently. So the simulator needs its own service account in this case. If `launchers` is True, also
    simulate the virt-launcher Pods of VMIs, their nodes, and migrations.

    Raises ConfigurationError if the kubeconfig cannot be used. If the API server does not answer, the simulator waits
    for the API server.
    """
    credentials = await load_credentials(os.fspath(kubeconfig))
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(open_client(credentials, user_agent=USER_AGENT, max_inflight=None))
        writer = client
        if virt_api and webhooks:
            path = stack.enter_context(kubeconfig_with(await create_token(client), kubeconfig))
            own = await load_credentials(str(path))
            writer = await stack.enter_async_context(open_client(own, user_agent=USER_AGENT, max_inflight=None))
        group = await stack.enter_async_context(asyncio.TaskGroup())
        if virt_api:
            group.create_task(server.run(writer, webhooks=webhooks), name="virt-api")
        cluster = _Cluster(writer, tuple(namespaces), defaults, launchers=launchers)
        group.create_task(cluster.run(workers), name="simulator")


class _Cluster:
    """The simulators and informers of all kinds, and the handlers for changes of related objects."""

    def __init__(
        self, client: ApiClient, namespaces: tuple[str, ...], defaults: SimulationSettings, *, launchers: bool
    ) -> None:
        self._defaults = defaults
        self._namespaces = namespaces

        def informer_of(resource: Resource[Any], **indexes: Any) -> SharedInformer[Any]:
            watched = namespaces if resource.namespaced else (ALL_NAMESPACES,)
            return SharedInformer(resource, client, namespaces=watched, indexes=indexes, chance=_no_jitter)

        self._vms: SharedInformer[SimulatedVM] = informer_of(VMS, storage=_storage_keys_of_vm)
        self._vmis: SharedInformer[SimulatedVMI] = informer_of(VMIS, storage=_storage_keys_of_vmi)
        self._volumes: SharedInformer[SimulatedDataVolume] = informer_of(DATA_VOLUMES)
        self._claims: SharedInformer[SimulatedClaim] = informer_of(CLAIMS)
        self._disks: SharedInformer[PersistentVolume] = informer_of(PERSISTENT_VOLUMES)
        self._revisions: SharedInformer[SimulatedRevision] = informer_of(REVISIONS, owner=_owner_keys_of)
        informers: dict[Resource[Any], SharedInformer[Any]] = {
            VMS: self._vms,
            VMIS: self._vmis,
            DATA_VOLUMES: self._volumes,
            CLAIMS: self._claims,
            PERSISTENT_VOLUMES: self._disks,
            REVISIONS: self._revisions,
        }
        self._launchers = LauncherSimulator(client, informer_of) if launchers else None
        self._informers = (*informers.values(), *(self._launchers.informers if self._launchers else ()))
        self._vm_simulator = KindSimulator(VMS, self._vm_step, client, informers)
        self._vmi_simulator = KindSimulator(VMIS, self._vmi_step, client, informers)
        self._volume_simulator = KindSimulator(DATA_VOLUMES, self._volume_step, client, informers)
        self._claim_simulator = KindSimulator(CLAIMS, self._claim_step, client, informers)
        self._disk_simulator = KindSimulator(PERSISTENT_VOLUMES, self._disk_step, client, informers)
        self._simulators: tuple[KindSimulator[Any], ...] = (
            self._vm_simulator,
            self._vmi_simulator,
            self._volume_simulator,
            self._claim_simulator,
            self._disk_simulator,
        )
        self._vms.add_handler(self._on_vm_change)
        self._vmis.add_handler(self._on_vmi_change)
        self._volumes.add_handler(self._on_volume_change)
        self._claims.add_handler(self._on_claim_change)
        self._disks.add_handler(self._on_disk_change)

    async def run(self, workers: int) -> None:
        """Run all informers and simulators until the task is cancelled.

        The simulators start after the informers have listed all existing objects.
        """
        async with asyncio.TaskGroup() as group:
            for informer in self._informers:
                group.create_task(informer.run(), name=f"simulator-{informer.resource.plural}-informer")
            # Poll, because no event reports a missing definition.
            while not all(informer.synced.is_set() or informer.missing for informer in self._informers):  # noqa: ASYNC110
                await asyncio.sleep(STARTING_POLL_S)
            for simulator in self._simulators:
                group.create_task(simulator.run(workers), name=f"simulator-{simulator.name}")
            if self._launchers is not None:
                await self._launchers.create_nodes()
                for each in self._launchers.simulators:
                    group.create_task(each.run(workers), name=f"simulator-launcher-{each.name}")
            # VMs may wait for DataVolumes, if the definition of DataVolumes was installed late.
            await self._volumes.synced.wait()
            self._vm_simulator.enqueue_all()

    def _vm_step(self, vm: SimulatedVM, now: datetime, _: datetime) -> Step:
        key = vm.metadata.key
        names = {name: ObjectKey(key.namespace, name) for name in storage_of(vm)}
        volumes = {name: self._volumes.store.get(target) for name, target in names.items()}
        claims = {name: self._claims.store.get(target) for name, target in names.items()}
        related = RelatedObjects(
            vmi=self._vmis.store.get(key),
            volumes={name: volume for name, volume in volumes.items() if volume is not None},
            claims={name: claim for name, claim in claims.items() if claim is not None},
            revisions={each.metadata.name: each for each in self._revisions.store.by_index(_OWNER, vm.metadata.uid)},
            serves_data_volumes=self._volumes.synced.is_set() and not self._volumes.missing,
        )
        return vm_behavior.next_step(vm, related, now, defaults=self._defaults)

    def _vmi_step(self, vmi: SimulatedVMI, now: datetime, first_seen: datetime) -> Step:
        claims = [self._claims.store.get(ObjectKey(vmi.metadata.namespace, name)) for name in claims_of(vmi)]
        obstacle = None
        if any(claim is None for claim in claims):
            obstacle = Obstacle(PVC_NOT_FOUND)
        elif any(claim is not None and not is_bound(claim) for claim in claims) or self._is_populating(vmi):
            obstacle = Obstacle()
        if self._launchers is not None:
            vmi = msgspec.structs.replace(vmi, placement=self._launchers.node_for(vmi.metadata), has_pod=True)
        vm = self._vms.store.get(vmi.metadata.key)
        vm_exists = vm is not None and is_controlled_by(vmi.metadata, vm.metadata)
        return behavior.next_step(vmi, now, first_seen, obstacle, vm_exists=vm_exists, defaults=self._defaults)

    def _is_populating(self, vmi: SimulatedVMI) -> bool:
        """Return True if a DataVolume of the VMI has the annotation `waiting-phase` and is not ready yet."""
        volumes = [self._volumes.store.get(ObjectKey(vmi.metadata.namespace, name)) for name in claims_of(vmi)]
        waited = [volume for volume in volumes if volume is not None and waiting_phase(volume.metadata)]
        return any(phase_of_volume(volume) != SUCCEEDED for volume in waited)

    def _volume_step(self, volume: SimulatedDataVolume, now: datetime, first_seen: datetime) -> Step:
        return volume_step(volume, self._claims.store.get(volume.metadata.key), now, first_seen)

    def _claim_step(self, claim: SimulatedClaim, now: datetime, _: datetime) -> Step:
        users = self._vmis.store.by_index(_STORAGE, str(claim.metadata.key))
        return claim_step(claim, self._disks.store.get(key_of(claim)), users, now)

    def _disk_step(self, disk: PersistentVolume, _now: datetime, _first_seen: datetime) -> Step:
        if ALL_NAMESPACES not in self._namespaces and disk.claim.namespace not in self._namespaces:
            return Step()
        return persistent_volume_step(disk, self._claims.store.get(disk.claim_key))

    def _on_vm_change(self, change: Change[SimulatedVM]) -> None:
        if isinstance(change, Removed):
            self._vmi_simulator.enqueue([change.last_known.metadata.key])

    def _on_vmi_change(self, change: Change[SimulatedVMI]) -> None:
        vmi = _subject(change)
        key = vmi.metadata.key
        self._vm_simulator.enqueue([key])
        self._claim_simulator.enqueue(
            target
            for target in (ObjectKey(key.namespace, name) for name in claims_of(vmi))
            if (claim := self._claims.store.get(target)) is not None
            and (claim.metadata.deletion_timestamp is not None or not is_bound(claim) or is_growing(claim))
        )

    def _on_volume_change(self, change: Change[SimulatedDataVolume]) -> None:
        key = _subject(change).metadata.key
        self._enqueue_users(self._vm_simulator, self._vms, key)
        self._enqueue_users(self._vmi_simulator, self._vmis, key)

    def _on_claim_change(self, change: Change[SimulatedClaim]) -> None:
        claim = _subject(change)
        key = claim.metadata.key
        self._volume_simulator.enqueue([key])
        self._disk_simulator.enqueue([key_of(claim)])
        self._enqueue_users(self._vm_simulator, self._vms, key)
        self._enqueue_users(self._vmi_simulator, self._vmis, key)

    def _on_disk_change(self, change: Change[PersistentVolume]) -> None:
        self._claim_simulator.enqueue([_subject(change).claim_key])

    @staticmethod
    def _enqueue_users(simulator: KindSimulator[Any], informer: SharedInformer[Any], storage: ObjectKey) -> None:
        simulator.enqueue(user.metadata.key for user in informer.store.by_index(_STORAGE, str(storage)))


def _subject(change: Change[Any]) -> Any:
    match change:
        case Added(new=subject) | Updated(new=subject) | Removed(last_known=subject):
            return subject


def _storage_keys_of_vm(vm: SimulatedVM) -> Iterator[str]:
    """Return the index keys of a VM: the key of each DataVolume and PVC that the VM uses."""
    return (str(ObjectKey(vm.metadata.namespace, name)) for name in storage_of(vm))


def _storage_keys_of_vmi(vmi: SimulatedVMI) -> Iterator[str]:
    return (str(ObjectKey(vmi.metadata.namespace, name)) for name in claims_of(vmi))


def _owner_keys_of(revision: SimulatedRevision) -> Iterator[str]:
    return (owner.uid for owner in revision.metadata.owner_references or ())


def _no_jitter() -> float:
    """Return 0, so that informers do not add random delays to their requests.

    A single client on loopback does not need such delays.
    """
    return 0.0


def _scale(text: str) -> float:
    scale = scale_of(text)
    if scale is None:
        raise argparse.ArgumentTypeError("expected a number from 0 to 1")
    return scale


async def _run_until_signal(simulation: Coroutine[Any, Any, None]) -> None:
    """Run the simulation until SIGTERM or Ctrl-C.

    SIGTERM cancels the simulation, so that it can remove its webhook configurations and its APIService.
    """
    task = asyncio.current_task()
    was_terminated = False

    def terminate() -> None:
        nonlocal was_terminated
        was_terminated = True
        if task is not None:
            task.cancel()

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminate)
    try:
        await simulation
    except asyncio.CancelledError:
        if not was_terminated:
            raise


def main() -> None:
    """Run the simulator as a separate program until Ctrl-C or SIGTERM."""
    # Configure logging only here, because other callers of `run` have their own configuration.
    from controller.logs import configure  # noqa: PLC0415

    parser = argparse.ArgumentParser(
        prog="python -m sandbox.simulator", description="Simulate KubeVirt's virtual machines on a cluster."
    )
    parser.add_argument(
        "--kubeconfig", required=True, help="kubeconfig of the cluster; its user must be allowed to write these objects"
    )
    parser.add_argument(
        "--time-scale",
        type=_scale,
        default=DEFAULT.time_scale,
        help="factor of KubeVirt's waiting times, from 0 to 1 (default %(default)s)",
    )
    parser.add_argument(
        "--detail",
        choices=DETAILS,
        default=DEFAULT.detail,
        help="full: show each write of KubeVirt; short: leave out states that do not last (default %(default)s)",
    )
    parser.add_argument(
        "--virt-api",
        default=True,
        action=argparse.BooleanOptionalAction,
        help="serve start, stop and restart of VMs (subresources.kubevirt.io)",
    )
    parser.add_argument(
        "--webhooks",
        default=False,
        action=argparse.BooleanOptionalAction,
        help="serve KubeVirt's webhooks too: they fill in defaults, and reject wrong objects",
    )
    parser.add_argument(
        "--launchers",
        default=False,
        action=argparse.BooleanOptionalAction,
        help="simulate virt-launcher Pods, their nodes, and migrations",
    )
    parser.add_argument("--log-level", default="info", choices=("debug", "info", "warning", "error"))
    arguments = parser.parse_args()
    configure(arguments.log_level, "auto")
    try:
        simulation = run(
            arguments.kubeconfig,
            defaults=SimulationSettings(time_scale=arguments.time_scale, detail=arguments.detail),
            virt_api=arguments.virt_api,
            webhooks=arguments.webhooks,
            launchers=arguments.launchers,
        )
        asyncio.run(_run_until_signal(simulation))
    except ConfigurationError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
