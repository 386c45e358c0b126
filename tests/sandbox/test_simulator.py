"""The simulator on the real API server: the states that clients see, and the number of writes."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager

import pytest
from structlog.testing import capture_logs

from informers.http.client import ApiClient, ConfigurationError, load_credentials, open_client
from informers.informer import SharedInformer
from informers.meta import ObjectKey
from informers.store import Added, Change, Removed, Updated
from sandbox import simulator
from sandbox.controlplane import ControlPlane
from sandbox.settings import BEHAVIOR, DETAIL, READY_AFTER, SHUTDOWN_AFTER
from sandbox.vmis import VMIS, SimulatedVMI, VMIState, state_of
from tests.sandbox.patience import until, wait_for

PATIENCE_S = 60.0
READY = VMIState("Running")
FULL = {DETAIL: "full"}
"""With this annotation, a late simulator skips no state."""


@asynccontextmanager
async def simulating(control_plane: ControlPlane, namespace: str) -> AsyncIterator[None]:
    """A simulator of this namespace, while the block runs."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(simulator.run(control_plane.kubeconfig, namespaces=(namespace,)))
        try:
            yield
        finally:
            task.cancel()


class Audience:
    """Watches the VMIs of a namespace. It can also create and delete VMIs."""

    def __init__(self, client: ApiClient, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self._changed = asyncio.Event()
        self.informer = SharedInformer(VMIS, client, namespaces=(namespace,), chance=lambda: 0.0)
        self.informer.add_handler(self._note)
        self.seen: dict[str, list[VMIState]] = {}

    def _note(self, change: Change[SimulatedVMI]) -> None:
        match change:
            case Added(new=vmi) | Updated(new=vmi):
                looks = self.seen.setdefault(vmi.metadata.name, [])
                look = state_of(vmi)
                if look is not None and (not looks or looks[-1] != look):
                    looks.append(look)
            case Removed():
                pass
        self._changed.set()

    async def create(self, *names: str, annotations: Mapping[str, str] | None = None) -> None:
        for name in names:
            document = {
                "apiVersion": VMIS.api_version,
                "kind": VMIS.kind,
                "metadata": {"name": name, "annotations": dict(annotations or {})},
                "spec": {"domain": {"devices": {}}},
            }
            await self._client.create(VMIS, self._namespace, json.dumps(document).encode())

    async def delete(self, name: str) -> None:
        await self._client.delete(VMIS, ObjectKey(self._namespace, name))

    def vmi(self, name: str) -> SimulatedVMI | None:
        return self.informer.store.get(ObjectKey(self._namespace, name))

    def looks(self, names: Iterable[str]) -> dict[str, VMIState | None]:
        return {name: state_of(vmi) if (vmi := self.vmi(name)) is not None else None for name in names}

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until the condition is true for the watched VMIs."""
        await until(holds, self._changed, within_s=PATIENCE_S, seen=lambda: self.seen)

    async def until_ready(self, *names: str) -> None:
        await self.until(lambda: all(look == READY for look in self.looks(names).values()))


@asynccontextmanager
async def watching(control_plane: ControlPlane, namespace: str) -> AsyncIterator[Audience]:
    credentials = await load_credentials(str(control_plane.kubeconfig))
    async with open_client(credentials, user_agent="audience") as client, asyncio.TaskGroup() as group:
        audience = Audience(client, namespace)
        task = group.create_task(audience.informer.run())
        try:
            await audience.informer.synced.wait()
            yield audience
        finally:
            task.cancel()


@pytest.fixture
async def audience(control_plane: ControlPlane, namespace: str) -> AsyncIterator[Audience]:
    """Watch the VMIs of the test's namespace."""
    # The same task must enter and leave a task group. Pytest enters and leaves a fixture in different tasks.
    leave = asyncio.Event()
    arrived: asyncio.Future[Audience] = asyncio.get_running_loop().create_future()

    async def stay() -> None:
        async with watching(control_plane, namespace) as someone:
            arrived.set_result(someone)
            await leave.wait()

    task = asyncio.ensure_future(stay())
    yield await arrived
    leave.set()
    await task


def writes_of_the_simulator(control_plane: ControlPlane, namespace: str) -> list[str]:
    """The object name of each write of the simulator, from the API server's audit log."""
    return [
        record.name
        for record in control_plane.audit_records()
        if record.user_agent.startswith(simulator.USER_AGENT)
        and record.namespace == namespace
        and record.verb not in ("list", "watch")
    ]


@pytest.mark.cluster
async def test_a_vmi_becomes_ready_with_one_write_and_is_removed_with_another(
    control_plane: ControlPlane, namespace: str, audience: Audience
) -> None:
    names = [f"vmi-{number}" for number in range(20)]
    async with simulating(control_plane, namespace):
        await audience.create(*names)
        await audience.until_ready(*names)
        assert all(looks == [READY] for looks in audience.seen.values())
        for name in names:
            await audience.delete(name)
        await audience.until(lambda: len(audience.informer.store) == 0)
    # A watch can show a write before the audit log does.
    wait_for(lambda: len(writes_of_the_simulator(control_plane, namespace)) >= 2 * len(names))
    assert sorted(writes_of_the_simulator(control_plane, namespace)) == sorted([*names, *names])


@pytest.mark.cluster
async def test_every_phase_can_be_watched(control_plane: ControlPlane, namespace: str, audience: Audience) -> None:
    async with simulating(control_plane, namespace):
        await audience.create("booting", annotations={READY_AFTER: "3s", **FULL})
        await audience.until_ready("booting")
    phases = [look.phase for look in audience.seen["booting"]]
    assert list(dict.fromkeys(phases)) == ["Pending", "Scheduling", "Scheduled", "Running"]
    assert phases[-2:] == ["Running", "Running"], "it runs before it is ready"


@pytest.mark.cluster
async def test_each_simulated_failure_ends_in_its_state(
    control_plane: ControlPlane, namespace: str, audience: Audience
) -> None:
    ends = {
        "never-ready": VMIState("Running", "ContainersNotReady"),
        "crash-loop": VMIState("Failed", "PodTerminating"),
        "image-error": VMIState("Scheduling", "GuestNotRunning", "ImagePullBackOff"),
        "finish": VMIState("Succeeded", "PodTerminating"),
        "fail": VMIState("Failed", "PodTerminating"),
        "unknown": VMIState("Unknown", "GuestNotRunning"),
    }
    async with simulating(control_plane, namespace):
        for behavior in ends:
            await audience.create(behavior, annotations={BEHAVIOR: behavior, **FULL})
        await audience.until(lambda: audience.looks(ends) == ends)
    were_ready = {behavior for behavior in ends if READY in audience.seen[behavior]}
    assert were_ready == {"crash-loop", "finish", "unknown"}


@pytest.mark.cluster
async def test_a_slow_shutdown_shows_and_ends(control_plane: ControlPlane, namespace: str, audience: Audience) -> None:
    async with simulating(control_plane, namespace):
        await audience.create("slow", annotations={BEHAVIOR: "slow-shutdown", SHUTDOWN_AFTER: "2s"})
        await audience.until_ready("slow")
        began = asyncio.get_running_loop().time()
        await audience.delete("slow")
        await audience.until(lambda: audience.seen["slow"][-1] == VMIState("Running", "PodTerminating"))
        await audience.until(lambda: audience.vmi("slow") is None)
        assert asyncio.get_running_loop().time() - began >= 2


@pytest.mark.cluster
async def test_a_simulator_that_is_started_again_continues(
    control_plane: ControlPlane, namespace: str, audience: Audience
) -> None:
    async with simulating(control_plane, namespace):
        await audience.create("booting", annotations={READY_AFTER: "2s"})
        await audience.create("going", annotations={SHUTDOWN_AFTER: "2s"})
        await audience.until_ready("going")
        await audience.delete("going")
        await audience.until(lambda: READY not in audience.seen["going"][-1:])
    await audience.create("new")
    async with simulating(control_plane, namespace):
        await audience.until_ready("booting", "new")
        await audience.until(lambda: audience.vmi("going") is None)


@pytest.mark.cluster
async def test_the_simulator_survives_an_outage_of_the_api_server(
    control_plane: ControlPlane, namespace: str, audience: Audience
) -> None:
    async with simulating(control_plane, namespace):
        await audience.create("booting", annotations={READY_AFTER: "3s"})
        await audience.until(lambda: bool(audience.seen.get("booting")))
        await asyncio.to_thread(control_plane.stop_apiserver)
        await asyncio.sleep(2)
        await asyncio.to_thread(control_plane.start_apiserver)
        await audience.until_ready("booting")
        await audience.create("new")
        await audience.until_ready("new")


@pytest.mark.cluster
async def test_a_name_that_is_used_again_is_another_vmi(
    control_plane: ControlPlane, namespace: str, audience: Audience
) -> None:
    async with simulating(control_plane, namespace):
        await audience.create("again", annotations={BEHAVIOR: "fail"})
        await audience.until(lambda: VMIState("Failed", "PodTerminating") in audience.looks(["again"]).values())
        await audience.delete("again")
        await audience.until(lambda: audience.vmi("again") is None)
        await audience.create("again")
        await audience.until_ready("again")


@pytest.mark.cluster
async def test_a_mistake_in_a_template_is_reported_once(
    control_plane: ControlPlane, namespace: str, audience: Audience
) -> None:
    names = [f"vmi-{number}" for number in range(5)]
    with capture_logs() as lines:
        async with simulating(control_plane, namespace):
            await audience.create(*names, annotations={READY_AFTER: "soon"})
            await audience.until_ready(*names)
    [line] = [line for line in lines if line["event"] == "annotation ignored"]
    assert '"soon"' in line["why"]
    assert READY_AFTER in line["why"]


async def test_a_missing_kubeconfig_is_an_error_of_one_line() -> None:
    with pytest.raises(ConfigurationError):
        await simulator.run("no-such-file")
    command = [sys.executable, "-m", "sandbox.simulator", "--kubeconfig", "no-such-file"]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
