"""The simulator on the real API server: what a user sees, and the number of writes."""

import asyncio
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from structlog.testing import capture_logs

from informers.http.client import ConfigurationError
from sandbox import simulator
from sandbox.audit import read_records
from sandbox.controlplane import ControlPlane
from sandbox.settings import READY_AFTER
from tests.cluster import Kubectl
from tests.controlplane.documents import is_ready, vm_document, vm_template, vmi_document
from tests.controlplane.waits import eventually


@asynccontextmanager
async def simulating(plane: ControlPlane, namespace: str) -> AsyncIterator[None]:
    """Run a simulator in this namespace while the block runs."""
    task = asyncio.create_task(simulator.run(plane.kubeconfig, namespaces=(namespace,)))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def until_ready(kubectl: Kubectl, kind: str, number: int) -> None:
    """Wait until so many objects of the kind are ready."""

    def are_ready() -> bool:
        return sum(map(is_ready, kubectl.json("get", kind)["items"])) == number

    await asyncio.to_thread(eventually, are_ready, what=f"{number} of {kind} are ready")


@pytest.mark.cluster
async def test_a_mistake_in_a_template_is_reported_once(control_plane: ControlPlane, kubectl: Kubectl) -> None:
    vmis = [vmi_document(f"vmi-{number}", annotations={READY_AFTER: "soon"}) for number in range(5)]
    with capture_logs() as lines:
        async with simulating(control_plane, kubectl.namespace):
            await asyncio.to_thread(kubectl.apply, *vmis)
            await until_ready(kubectl, "vmi", len(vmis))
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
async def test_nothing_is_written_twice(control_plane: ControlPlane, kubectl: Kubectl) -> None:
    namespace = kubectl.namespace
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
    vms = [vm_document(name, template=vm_template(disks=(f"{name}-0",))) for name in names]
    async with simulating(control_plane, namespace):
        *most, last = vms
        await asyncio.to_thread(kubectl.apply, *most)
        await until_ready(kubectl, "vm", len(most))
        # A second write for one of these VMs comes before the writes for the last VM.
        await asyncio.to_thread(kubectl.apply, last)
        await until_ready(kubectl, "vm", len(vms))
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
