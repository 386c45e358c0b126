"""Simulates KubeVirt and CDI on a cluster: `python -m sandbox.simulator --kubeconfig FILE`.

Each kind has a `KindSimulator`, which is called again when a related object changes. All state is in the cluster, so
the simulator can be killed and started again. If the CRD of a kind is installed later, its simulation starts then.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import AsyncExitStack, suppress
from datetime import datetime
from itertools import chain
from typing import Any, TypeVar

import click
import msgspec

from controller.apimachinery.indexes import by_owner_uid
from controller.kubevirt.resources import CONTROLLER_REVISIONS
from controller.kubevirt.vm_types import ControllerRevision
from informers.http.client import ApiClient, ConfigurationError, load_credentials, open_client
from informers.informer import SharedInformer
from informers.meta import KubeObject, ObjectKey, is_controlled_by
from informers.resource import PartialObject, Resource
from informers.store import ALL_NAMESPACES, Change, Removed
from sandbox import behavior, vm_behavior
from sandbox.claims import (
    CLAIMS,
    PERSISTENT_VOLUMES,
    STORAGE_CLASSES,
    PersistentVolume,
    SimulatedClaim,
    claim_step,
    persistent_volume_step,
)
from sandbox.datavolumes import DATA_VOLUMES, SimulatedDataVolume, obstacle_of, volume_step
from sandbox.instance_types import DEFINITIONS, Definition, matchers_of
from sandbox.kind_simulator import KindSimulator, subject_of
from sandbox.launchers.simulator import LauncherSimulator
from sandbox.settings import DEFAULT, Detail, SimulationSettings, simulation_options
from sandbox.step import NextStep, Step
from sandbox.virt_api import server
from sandbox.virt_api.registration import create_token
from sandbox.vm_status import RelatedObjects
from sandbox.vmis import VMIS, SimulatedVMI
from sandbox.vms import VMS, SimulatedVM

USER_AGENT = "vmherd-simulator"
WORKERS = 16
"""The number of workers, and so of parallel requests, for each kind. More would slow down the controller."""

STARTING_POLL_S = 0.05
T = TypeVar("T", bound=KubeObject)

_STORAGE = "storage"
_OWNER = "owner"


async def run(
    kubeconfig: str | os.PathLike[str],
    *,
    namespaces: Iterable[str] = (ALL_NAMESPACES,),
    defaults: SimulationSettings = DEFAULT,
    virt_api: bool = False,
    webhooks: bool = False,
    launchers: bool = False,
) -> None:
    """Simulate the objects in these namespaces until the task is cancelled. Raises ConfigurationError.

    `virt_api` serves the subresources of VMs in the whole cluster. `webhooks` serves KubeVirt's webhooks, which treat
    users and KubeVirt differently: the simulator then has its own service account.
    """
    credentials = await load_credentials(os.fspath(kubeconfig))
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(open_client(credentials, user_agent=USER_AGENT, max_inflight=None))
        writer = client
        if virt_api and webhooks:
            own = await load_credentials(os.fspath(kubeconfig), token=await create_token(client))
            writer = await stack.enter_async_context(open_client(own, user_agent=USER_AGENT, max_inflight=None))
        group = await stack.enter_async_context(asyncio.TaskGroup())
        if virt_api:
            group.create_task(server.run(writer, webhooks=webhooks), name="virt-api")
        cluster = _Cluster(writer, tuple(namespaces), defaults, launchers=launchers)
        group.create_task(cluster.run(), name="simulator")


class _Cluster:
    def __init__(
        self, client: ApiClient, namespaces: tuple[str, ...], defaults: SimulationSettings, *, launchers: bool
    ) -> None:
        self._defaults = defaults
        self._namespaces = namespaces

        self._informers: dict[Resource[Any], SharedInformer[Any]] = {}

        def informer_of(resource: Resource[Any], **indexes: Any) -> SharedInformer[Any]:
            watched = namespaces if resource.namespaced else (ALL_NAMESPACES,)
            # A single client on loopback needs no random delays of its requests.
            informer = SharedInformer(resource, client, namespaces=watched, indexes=indexes, chance=lambda: 0.0)
            self._informers[resource] = informer
            return informer

        self._vms: SharedInformer[SimulatedVM] = informer_of(VMS, storage=_storage_keys)
        self._vmis: SharedInformer[SimulatedVMI] = informer_of(VMIS, storage=_storage_keys)
        self._volumes: SharedInformer[SimulatedDataVolume] = informer_of(DATA_VOLUMES)
        self._claims: SharedInformer[SimulatedClaim] = informer_of(CLAIMS)
        self._disks: SharedInformer[PersistentVolume] = informer_of(PERSISTENT_VOLUMES)
        self._revisions: SharedInformer[ControllerRevision] = informer_of(CONTROLLER_REVISIONS, owner=by_owner_uid)
        self._classes: SharedInformer[PartialObject] = informer_of(STORAGE_CLASSES)
        kinds = chain.from_iterable(DEFINITIONS.values())
        self._definitions: dict[Any, SharedInformer[Definition]] = {each: informer_of(each) for each in kinds}
        self._simulators: list[KindSimulator[Any]] = []

        def simulator_of(
            resource: Resource[Any], step: NextStep[Any], on_change: Callable[[Any], None]
        ) -> KindSimulator[Any]:
            self._informers[resource].add_handler(on_change)
            warns = resource in (VMIS, DATA_VOLUMES, CLAIMS)  # a VM hands its annotations on to its VMI
            self._simulators.append(KindSimulator(resource, step, client, self._informers, warns=warns))
            return self._simulators[-1]

        self._vm_simulator = simulator_of(VMS, self._vm_step, self._on_vm_change)
        self._vmi_simulator = simulator_of(VMIS, self._vmi_step, self._on_vmi_change)
        self._volume_simulator = simulator_of(
            DATA_VOLUMES,
            lambda volume, *at: volume_step(volume, self._claims.store.get(volume.metadata.key), *at),
            lambda change: self._enqueue_users(subject_of(change).metadata.key),
        )
        self._claim_simulator = simulator_of(CLAIMS, self._claim_step, self._on_claim_change)
        self._disk_simulator = simulator_of(
            PERSISTENT_VOLUMES,
            self._disk_step,
            lambda change: self._claim_simulator.enqueue([subject_of(change).claim_key]),
        )
        self._classes.add_handler(lambda _: self._claim_simulator.enqueue_all())
        for informer in self._definitions.values():
            informer.add_handler(lambda _: self._vm_simulator.enqueue_all())
        self._launchers: LauncherSimulator | None = None
        if launchers:
            self._launchers = LauncherSimulator(client, informer_of, self._informers, self._vmi_simulator)
            self._simulators += self._launchers.simulators

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            informers = self._informers.values()
            for informer in informers:
                group.create_task(informer.run(), name=f"simulator-{informer.resource.plural}-informer")
            # Poll, because no event reports a missing definition.
            while not all(informer.synced.is_set() or informer.missing for informer in informers):  # noqa: ASYNC110
                await asyncio.sleep(STARTING_POLL_S)
            if self._launchers is not None:
                await self._launchers.create_nodes()
            for simulator in self._simulators:
                group.create_task(simulator.run(WORKERS), name=f"simulator-{simulator.name}")
            # VMs may wait for DataVolumes, if the definition of DataVolumes was installed late.
            await self._volumes.synced.wait()
            self._vm_simulator.enqueue_all()

    def _vm_step(self, vm: SimulatedVM, now: datetime, _: datetime) -> Step:
        definitions = {
            name: self._definitions[resource].store.get(
                ObjectKey(vm.metadata.namespace if resource.namespaced else "", matcher.name)
            )
            for name, matcher, resource in matchers_of(vm)
        }
        related = RelatedObjects(
            vmi=self._vmis.store.get(vm.metadata.key),
            volumes=_storage_of(vm, self._volumes),
            claims=_storage_of(vm, self._claims),
            revisions={each.metadata.name: each for each in self._revisions.store.by_index(_OWNER, vm.metadata.uid)},
            serves_data_volumes=self._volumes.synced.is_set() and not self._volumes.missing,
            definitions={name: each for name, each in definitions.items() if each is not None},
        )
        return vm_behavior.next_step(vm, related, now, defaults=self._defaults)

    def _vmi_step(self, vmi: SimulatedVMI, now: datetime, first_seen: datetime) -> Step:
        if self._launchers is not None:
            step = self._launchers.vmi_step(vmi, now)
            if step != Step():
                return step
            vmi = msgspec.structs.replace(vmi, placement=self._launchers.node_for(vmi.metadata), has_pod=True)
        obstacle = obstacle_of(vmi, _storage_of(vmi, self._claims), _storage_of(vmi, self._volumes))
        vm = self._vms.store.get(vmi.metadata.key)
        vm_exists = vm is not None and is_controlled_by(vmi.metadata, vm.metadata.uid)
        return behavior.next_step(vmi, now, first_seen, obstacle, vm_exists=vm_exists, defaults=self._defaults)

    def _claim_step(self, claim: SimulatedClaim, now: datetime, _: datetime) -> Step:
        users = self._vmis.store.by_index(_STORAGE, str(claim.metadata.key))
        has_class = self._classes.store.get(ObjectKey("", claim.spec.storage_class_name or "")) is not None
        return claim_step(claim, self._disks.store.get(claim.volume_key), users, now, has_class=has_class)

    def _disk_step(self, disk: PersistentVolume, _now: datetime, _first_seen: datetime) -> Step:
        if ALL_NAMESPACES not in self._namespaces and disk.claim.namespace not in self._namespaces:
            return Step()
        return persistent_volume_step(disk, self._claims.store.get(disk.claim_key))

    def _on_vm_change(self, change: Change[SimulatedVM]) -> None:
        if isinstance(change, Removed):
            self._vmi_simulator.enqueue([change.last_known.metadata.key])

    def _on_vmi_change(self, change: Change[SimulatedVMI]) -> None:
        vmi = subject_of(change)
        key = vmi.metadata.key
        self._vm_simulator.enqueue([key])
        self._claim_simulator.enqueue(ObjectKey(key.namespace, name) for name in vmi.storage)

    def _on_claim_change(self, change: Change[SimulatedClaim]) -> None:
        claim = subject_of(change)
        key = claim.metadata.key
        self._volume_simulator.enqueue([key])
        self._disk_simulator.enqueue([claim.volume_key])
        self._enqueue_users(key)

    def _enqueue_users(self, storage: ObjectKey) -> None:
        for simulator, informer in ((self._vm_simulator, self._vms), (self._vmi_simulator, self._vmis)):
            simulator.enqueue(user.metadata.key for user in informer.store.by_index(_STORAGE, str(storage)))


def _storage_of(user: SimulatedVM | SimulatedVMI, informer: SharedInformer[T]) -> dict[str, T]:
    found = {name: informer.store.get(ObjectKey(user.metadata.namespace, name)) for name in user.storage}
    return {name: obj for name, obj in found.items() if obj is not None}


def _storage_keys(user: SimulatedVM | SimulatedVMI) -> Iterator[str]:
    return (str(ObjectKey(user.metadata.namespace, name)) for name in user.storage)


async def _until_terminated(simulation: Coroutine[Any, Any, None]) -> None:
    """Run the simulation. SIGTERM cancels it, so that it can remove its webhook configurations and its APIService."""
    if task := asyncio.current_task():
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    await simulation


@click.command("python -m sandbox.simulator")
@click.option(
    "--kubeconfig", required=True, help="kubeconfig of the cluster; its user must be allowed to write these objects"
)
@simulation_options
@click.option(
    "--virt-api/--no-virt-api", default=True, help="serve start, stop and restart of VMs (subresources.kubevirt.io)"
)
@click.option(
    "--webhooks/--no-webhooks", help="serve KubeVirt's webhooks too: they fill in defaults, and reject wrong objects"
)
@click.option("--launchers/--no-launchers", help="simulate virt-launcher Pods, their nodes, and migrations")
@click.option(
    "--log-level", default="info", type=click.Choice(("debug", "info", "warning", "error")), show_default=True
)
def main(*, kubeconfig: str, time_scale: float, detail: Detail, log_level: str, **services: Any) -> None:
    """Simulate KubeVirt's virtual machines on a cluster, until Ctrl-C or SIGTERM."""
    # Configure logging only here, because other callers of `run` have their own configuration.
    from controller.logs import configure  # noqa: PLC0415

    configure(log_level, "auto")
    settings = SimulationSettings(time_scale=time_scale, detail=detail)
    try:
        with suppress(asyncio.CancelledError):  # SIGTERM
            asyncio.run(_until_terminated(run(kubeconfig, defaults=settings, **services)))
    except ConfigurationError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
