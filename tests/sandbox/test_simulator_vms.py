"""The simulator on the real API server: what a user sees, and the number of writes."""

import asyncio
import json
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from structlog.testing import capture_logs

from informers.http.client import ApiClient, ConfigurationError, load_credentials, open_client
from informers.informer import SharedInformer
from informers.meta import ObjectKey
from informers.resource import Resource
from sandbox import simulator
from sandbox.audit import read_records
from sandbox.claims import CLAIMS
from sandbox.controlplane import ControlPlane
from sandbox.datavolumes import DATA_VOLUMES
from sandbox.settings import DEFAULT, READY_AFTER, SimulationSettings
from sandbox.vmis import VMIS, VMIState
from sandbox.vms import VMS
from tests.controlplane.waits import eventually
from tests.sandbox.machines import vm_document
from tests.sandbox.patience import until

PATIENCE_S = 60.0


class Scene:
    """A watched namespace in which a simulator works. Each kind has its own watch, and one watch may be late."""

    def __init__(self, client: ApiClient, namespace: str) -> None:
        self.client = client
        self._namespace = namespace
        self._changed = asyncio.Event()
        self.informers: dict[Resource[Any], SharedInformer[Any]] = {}
        for resource in (VMS, VMIS, DATA_VOLUMES, CLAIMS):
            informer: SharedInformer[Any] = SharedInformer(
                resource, client, namespaces=(namespace,), chance=lambda: 0.0
            )
            informer.add_handler(lambda _: self._changed.set())
            self.informers[resource] = informer

    async def create(self, resource: Resource[Any], document: dict[str, Any]) -> None:
        body = {"apiVersion": resource.api_version, "kind": resource.kind, **document}
        await self.client.create(resource, self._namespace, json.dumps(body).encode())

    def get(self, resource: Resource[Any], name: str = "vm") -> Any:
        return self.informers[resource].store.get(ObjectKey(self._namespace, name))

    def word(self, name: str = "vm") -> str | None:
        vm = self.get(VMS, name)
        return vm.status.printable_status if vm is not None and vm.status is not None else None

    async def until(self, holds: Callable[[], object]) -> None:
        await until(holds, self._changed, within_s=PATIENCE_S, seen=self._everything)

    async def until_it_is(self, word: str, name: str = "vm") -> None:
        await self.until(lambda: self.word(name) == word)

    def _everything(self) -> list[Any]:
        return [obj for informer in self.informers.values() for obj in informer.store.values()]


@asynccontextmanager
async def playing(plane: ControlPlane, namespace: str, defaults: SimulationSettings = DEFAULT) -> AsyncIterator[Scene]:
    credentials = await load_credentials(str(plane.kubeconfig))
    async with open_client(credentials, user_agent="audience") as client, asyncio.TaskGroup() as group:
        scene = Scene(client, namespace)
        tasks = [group.create_task(informer.run()) for informer in scene.informers.values()]
        tasks.append(group.create_task(simulator.run(plane.kubeconfig, namespaces=(namespace,), defaults=defaults)))
        try:
            await asyncio.wait_for(scene.informers[VMS].synced.wait(), PATIENCE_S)
            yield scene
        finally:
            for task in tasks:
                task.cancel()


def vmi_document(name: str, **annotations: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "annotations": annotations}, "spec": {"domain": {"devices": {}}}}


def is_ready(scene: Scene, *names: str) -> bool:
    return all((vmi := scene.get(VMIS, name)) is not None and vmi.state == VMIState("Running") for name in names)


@pytest.mark.cluster
async def test_a_mistake_in_a_template_is_reported_once(control_plane: ControlPlane, namespace: str) -> None:
    names = [f"vmi-{number}" for number in range(5)]
    with capture_logs() as lines:
        async with playing(control_plane, namespace) as scene:
            for name in names:
                await scene.create(VMIS, vmi_document(name, **{READY_AFTER: "soon"}))
            await scene.until(lambda: is_ready(scene, *names))
    [line] = [line for line in lines if line["event"] == "annotation ignored"]
    assert '"soon"' in line["why"]
    assert READY_AFTER in line["why"]


def writes_in(plane: ControlPlane, namespace: str, since: int) -> Counter[tuple[str, str, str, int]]:
    """The writes of the simulator in this namespace, from the API server's audit log."""
    return Counter(
        (record.verb, record.resource, record.subresource, record.code)
        for record in read_records(plane.audit_log, since)
        if record.user_agent.startswith(simulator.USER_AGENT)
        and record.namespace == namespace
        and record.verb not in ("list", "watch")
    )


@pytest.mark.cluster
async def test_nothing_is_written_twice(control_plane: ControlPlane, namespace: str) -> None:
    names, since = [f"vm-{number}" for number in range(20)], control_plane.audit_position()
    once = dict.fromkeys(
        [
            ("patch", "virtualmachines", "", 200),
            ("create", "datavolumes", "", 201),
            ("create", "persistentvolumeclaims", "", 201),
            ("patch", "persistentvolumeclaims", "status", 200),
            ("create", "controllerrevisions", "", 201),
            ("create", "virtualmachineinstances", "", 201),
            ("patch", "virtualmachineinstances", "", 200),
        ],
        len(names),
    )
    async with playing(control_plane, namespace) as scene:
        *most, last = names
        await asyncio.gather(*(scene.create(VMS, vm_document(name, disks=[f"{name}-0"])) for name in most))
        await scene.until(lambda: all(scene.word(name) == "Running" for name in most))
        # A second write for one of these VMs comes before the writes for the last VM.
        await scene.create(VMS, vm_document(last, disks=[f"{last}-0"]))
        await scene.until_it_is("Running", last)
        await asyncio.to_thread(eventually, lambda: once.items() <= writes_in(control_plane, namespace, since).items())
    writes = writes_in(control_plane, namespace, since)
    # The number of status writes depends on the speed of the server: short states may be skipped.
    for resource, most_writes in (("virtualmachines", 3), ("datavolumes", 2)):
        assert len(names) <= writes.pop(("patch", resource, "status", 200)) <= most_writes * len(names)
    assert writes == once


async def test_a_missing_kubeconfig_is_an_error_of_one_line() -> None:
    with pytest.raises(ConfigurationError):
        await simulator.run("no-such-file")
    command = [sys.executable, "-m", "sandbox.simulator", "--kubeconfig", "no-such-file"]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
