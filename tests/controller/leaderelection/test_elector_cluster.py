"""Leader election against the real API server, in real time."""

import asyncio
import json
import signal
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.leaderelection import elector
from controller.leaderelection.elector import ElectionImpossible, LeaderElector, new_identity
from informers.http.client import load_credentials, open_client
from sandbox.audit import AuditRecord
from tests.cluster import Kubectl

pytestmark = pytest.mark.cluster

SOON_S = 60.0
PATIENT = {"lease_duration_s": 12.0, "renew_deadline_s": 10.0, "retry_period_s": 0.4}
"""The times of a leader that must stay the leader on a busy machine. It renews its lease often."""


class NoMetrics:
    def leading(self, lease: str, *, master: bool) -> None: ...


class Candidate:
    """A process in the election: a client, an elector, and work that runs until `stop` is set."""

    def __init__(self, client: Any, namespace: str, name: str, **times: float) -> None:
        self.elector = LeaderElector(
            client,
            namespace=namespace,
            name="vmherd",
            identity=name,
            wall_clock=lambda: datetime.now(UTC),
            instruments=NoMetrics(),
            **times,
        )
        self.stop = asyncio.Event()
        self.led_from = self.led_to = 0.0
        self.task = asyncio.current_task()

    @property
    def leads(self) -> bool:
        return self.led_from > 0 and self.elector.is_leader

    async def run(self) -> bool:
        async with self.elector.elected(self.stop) as leading:
            if leading:
                self.led_from = time.monotonic()
                try:
                    await self.stop.wait()
                finally:
                    self.led_to = time.monotonic()
        return leading


Join = Callable[..., Awaitable[Candidate]]


@asynccontextmanager
async def election(kubeconfig: Path, namespace: str) -> AsyncIterator[Join]:
    """Yield a function that starts a candidate with a new client and a new task. End all candidates after the block."""
    tasks: list[asyncio.Task[None]] = []

    async def run(name: str, times: dict[str, float], candidates: asyncio.Queue[Candidate]) -> None:
        credentials = await load_credentials(str(kubeconfig))
        async with open_client(credentials, user_agent=f"vmherd-tests {name}", max_inflight=None) as client:
            candidate = Candidate(client, namespace, name, **times)
            candidates.put_nowait(candidate)
            await candidate.run()

    async def join(name: str, **times: float) -> Candidate:
        candidates: asyncio.Queue[Candidate] = asyncio.Queue()
        tasks.append(asyncio.create_task(run(name, times, candidates), name=name))
        return await candidates.get()

    try:
        yield join
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def until(condition: Callable[[], bool], *, within_s: float) -> None:
    async with asyncio.timeout(within_s):
        while not condition():
            await asyncio.sleep(0.01)


async def record(kubectl: Kubectl) -> dict[str, Any]:
    spec: dict[str, Any] = (await asyncio.to_thread(kubectl.json, "get", "lease", "vmherd"))["spec"]
    return spec


async def until_renewed(kubectl: Kubectl, holder: str, *, since: datetime) -> None:
    """Wait until this holder has renewed the lease after this time."""
    async with asyncio.timeout(SOON_S):
        while True:
            seen = await asyncio.to_thread(kubectl, "get", "lease", "vmherd", "-o", "json", check=False)
            spec = json.loads(seen.stdout)["spec"] if seen.returncode == 0 else {}
            if spec.get("holderIdentity") == holder and datetime.fromisoformat(spec["renewTime"]) > since:
                return
            await asyncio.sleep(0.1)


async def test_the_lease_has_the_usual_fields(control_plane, namespace, kubectl):
    identity, began = new_identity(), datetime.now(UTC)
    async with election(control_plane.kubeconfig, namespace) as join:
        leader = await join(identity)
        await until(lambda: leader.leads, within_s=SOON_S)
        spec = await record(kubectl)
        assert spec["holderIdentity"] == identity
        assert spec["leaseDurationSeconds"] == 15
        assert spec["leaseTransitions"] == 0
        renewed = datetime.fromisoformat(spec["renewTime"])
        assert began <= renewed <= datetime.now(UTC)
        assert datetime.fromisoformat(spec["acquireTime"]) <= renewed
        assert identity in (await asyncio.to_thread(kubectl, "get", "lease")).stdout


async def test_a_standby_takes_a_released_lease_with_its_next_request(control_plane, namespace, kubectl):
    """That this takes less than two seconds is checked in virtual time, in test_elector.py."""
    async with election(control_plane.kubeconfig, namespace) as join:
        leader = await join("leader")
        await until(lambda: leader.leads, within_s=SOON_S)
        standby = await join("standby")
        await until(lambda: standby.elector.holder == "leader", within_s=SOON_S)
        leader.stop.set()
        await until(lambda: standby.leads, within_s=SOON_S)
        spec = await record(kubectl)
    assert (spec["holderIdentity"], spec["leaseTransitions"]) == ("standby", 1)

    def requests_of(name: str) -> list[AuditRecord]:
        return [
            each
            for each in control_plane.audit_records()
            if each.namespace == namespace and each.resource == "leases" and each.user_agent == f"vmherd-tests {name}"
        ]

    released = max(each.stage_timestamp for each in requests_of("leader"))
    await until(lambda: any(each.verb == "patch" for each in requests_of("standby")), within_s=SOON_S)
    later = [each.verb for each in requests_of("standby") if each.request_received_timestamp > released]
    assert later[:2] == ["get", "patch"]


WRITER = """
import asyncio, sys, time
from datetime import UTC, datetime
from controller.leaderelection.elector import LeaderElector, LeaseLost
from informers.http.client import load_credentials, open_client

class NoMetrics:
    def leading(self, lease, *, master): ...

async def main(kubeconfig, namespace):
    credentials = await load_credentials(kubeconfig)
    async with open_client(credentials, user_agent="vmherd-tests", max_inflight=None) as client:
        elector = LeaderElector(
            client, namespace=namespace, name="vmherd", identity="stopped", wall_clock=lambda: datetime.now(UTC),
            instruments=NoMetrics(), lease_duration_s=12.0, renew_deadline_s=10.0, retry_period_s=0.4,
        )
        async with elector.elected(asyncio.Event()):
            while True:
                now = time.monotonic()  # the system may stop the process between the check and the write
                elector.check()
                print("write", now, file=sys.stderr, flush=True)
                await asyncio.sleep(0.01)

try:
    asyncio.run(main(*sys.argv[1:]))
except* Exception as group:
    print(*{type(leaf).__name__ for leaf in group.exceptions}, file=sys.stderr, flush=True)
    sys.exit(3)
"""


async def test_a_leader_that_is_suspended_until_its_lease_has_expired_writes_no_more(control_plane, namespace):
    arguments = ["-c", textwrap.dedent(WRITER), str(control_plane.kubeconfig), namespace]
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stderr=asyncio.subprocess.PIPE)
    assert process.stderr is not None
    try:
        async with asyncio.timeout(SOON_S):
            while not (await process.stderr.readline()).startswith(b"write"):
                pass
        async with election(control_plane.kubeconfig, namespace) as join:
            successor = await join("successor", **PATIENT)
            await until(lambda: successor.elector.holder == "stopped", within_s=SOON_S)
            process.send_signal(signal.SIGSTOP)
            await until(lambda: successor.leads, within_s=SOON_S)
            process.send_signal(signal.SIGCONT)
            output = (await asyncio.wait_for(process.stderr.read(), SOON_S)).decode()
            assert await process.wait() == 3
            assert successor.elector.is_leader
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    # CLOCK_MONOTONIC is the same clock in all processes of a machine.
    writes = [float(line.split()[1]) for line in output.splitlines() if line.startswith("write")]
    assert writes
    assert max(writes) < successor.led_from


def kubeconfig_of(kubectl: Kubectl, account: str, directory: Path) -> Path:
    """Write a kubeconfig that only has the token of this service account."""
    config = yaml.safe_load(kubectl.kubeconfig.read_text())
    token = kubectl("create", "token", account).stdout.strip()
    config["users"] = [{"name": config["users"][0]["name"], "user": {"token": token}}]
    path = directory / f"{account}.kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path


async def test_the_error_for_a_missing_permission_names_the_required_verbs(
    control_plane, namespace, kubectl, tmp_path, monkeypatch
):
    monkeypatch.setattr(elector, "FORBIDDEN_S", 1.0)
    kubectl("create", "serviceaccount", "unprivileged")
    async with election(kubeconfig_of(kubectl, "unprivileged", tmp_path), namespace) as join:
        candidate = await join("a")
        await asyncio.wait([candidate.task], timeout=SOON_S)
        with pytest.raises(ElectionImpossible, match=r"cannot get resource .*leases.* create, get and patch"):
            candidate.task.result()


async def test_an_election_needs_only_create_get_and_patch(control_plane, namespace, kubectl, tmp_path):
    kubectl("create", "serviceaccount", "candidate")
    kubectl("create", "role", "create", "--verb=create", "--resource=leases")
    kubectl("create", "role", "lead", "--verb=get,patch", "--resource=leases", "--resource-name=vmherd")
    for role in ("create", "lead"):
        kubectl("create", "rolebinding", role, f"--role={role}", f"--serviceaccount={namespace}:candidate")
    async with election(kubeconfig_of(kubectl, "candidate", tmp_path), namespace) as join:
        leader = await join("a", **PATIENT)
        await until(lambda: leader.leads, within_s=SOON_S)
        await until_renewed(kubectl, "a", since=datetime.now(UTC))
        assert leader.elector.is_leader
        leader.stop.set()
        await asyncio.wait([leader.task])
        assert (await record(kubectl)).get("holderIdentity", "") == ""


async def test_the_error_for_a_missing_namespace_names_it(control_plane):
    async with election(control_plane.kubeconfig, "no-such-place") as join:
        candidate = await join("a")
        await asyncio.wait([candidate.task], timeout=SOON_S)
        with pytest.raises(ElectionImpossible, match='namespaces "no-such-place" not found'):
            candidate.task.result()
