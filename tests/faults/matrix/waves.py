"""Faults of processes. They hit every run on a control plane, so all scenarios run together, in a wave.

In a wave, the scenarios wait for each other: all are prepared, then all users act, then the fault begins. The
controllers are processes with the chart's account, as in a cluster.
"""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

from msgspec import Struct

from sandbox.controlplane import APISERVER, ETCD, ControlPlane
from tests.controlplane.programs import ControllerProcess, controller_process
from tests.faults import plane as planes
from tests.faults.matrix.bench import Bench
from tests.faults.matrix.catalogue import Injection, ProcessPlace
from tests.faults.matrix.herd import Herd
from tests.faults.proxy.rules import Rule

FROZEN_S = 4.0
LEASE = ("--lease-duration", "8s", "--renew-deadline", "6s", "--retry-period", "1s")
LEASE_S = 8.0
LEASE_LOST = "the lease vmherd-system/vmherd"
"""A part of the last line of a controller that has lost its lease."""

STRIKES_AFTER_S = 0.3
"""The time, in seconds, between the first actions of the users and the fault."""

ACTED_WITHIN_S = 5.0
NOTICED_S = 10.0
"""The caches see a restore of etcd one after the other. A pool that a user creates in between can skip an ordinal."""


class Scene(Struct, frozen=True):
    """What a fault of a process can hit."""

    plane: ControlPlane
    controllers: Sequence[ControllerProcess]
    directory: Path


class ProcessFault(Struct, frozen=True, kw_only=True):
    """A fault of a process.

    The function in `before` is called when all scenarios are prepared. The function in `strike` causes the fault. It is
    called after the first actions of the users.
    """

    name: str
    strike: Callable[[Scene], None]
    before: Callable[[Scene], None] = lambda _scene: None
    loses_acts: bool = False
    """True if the fault undoes the first actions of the users. After the fault, the users repeat their actions."""

    noticed_s: float = 0.0
    """The time until all caches show what the fault has changed. Then the users act again."""

    hides: bool = False
    """True if the observer and the audit log may miss a change. Then it can be unknown which write set a field."""

    controllers: int = 1
    loses_lease: bool = False
    """True if one controller loses its lease. It ends, and its Deployment would start it again."""


def _frozen(component: str) -> Callable[[Scene], None]:
    def strike(scene: Scene) -> None:
        with planes.frozen(scene.plane, component):
            time.sleep(FROZEN_S)

    return strike


def _compact_and_restart(scene: Scene) -> None:
    planes.compact(scene.plane)
    planes.kill_apiserver(scene.plane)


def _snapshot_of(scene: Scene) -> Path:
    return scene.directory / "etcd-snapshot"


def _take_snapshot(scene: Scene) -> None:
    planes.snapshot(scene.plane, _snapshot_of(scene))


def _restore(scene: Scene) -> None:
    planes.restore(scene.plane, planes.Snapshot(_snapshot_of(scene), 0))


def _freeze_leader(scene: Scene) -> None:
    """Freeze the leader until long after the end of its lease, and thaw it while the other controller works."""
    leader = next(each for each in scene.controllers if each.lines(msg="working"))
    os.kill(leader.process.pid, signal.SIGSTOP)
    time.sleep(LEASE_S + 6)
    os.kill(leader.process.pid, signal.SIGCONT)


PROCESS_FAULTS: Mapping[str, ProcessFault] = {
    fault.name: fault
    for fault in (
        ProcessFault(name="apiserver-restarted", hides=True, strike=lambda scene: scene.plane.restart_apiserver()),
        ProcessFault(name="apiserver-killed", hides=True, strike=lambda scene: planes.kill_apiserver(scene.plane)),
        ProcessFault(name="apiserver-frozen", strike=_frozen(APISERVER)),
        ProcessFault(name="etcd-frozen", strike=_frozen(ETCD)),
        ProcessFault(name="etcd-restarted", hides=True, strike=lambda scene: planes.restart_etcd(scene.plane)),
        ProcessFault(name="etcd-compacted", hides=True, strike=_compact_and_restart),
        ProcessFault(name="etcd-defragmented", strike=lambda scene: planes.defragment(scene.plane)),
        ProcessFault(
            name="etcd-restored",
            hides=True,
            before=_take_snapshot,
            strike=_restore,
            loses_acts=True,
            noticed_s=NOTICED_S,
        ),
        ProcessFault(name="leader-frozen", strike=_freeze_leader, controllers=2, loses_lease=True),
    )
}


class NoHerd(Herd):
    """Takes the place of a run's own controller in a wave. The controllers of a wave are processes."""

    def __init__(self, bench: Bench, namespace: str, wave: "Wave") -> None:
        super().__init__(bench, namespace)
        self._wave = wave

    @property
    def fired(self) -> int:
        return int(bool(self._wave.started))

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def arm(self, *_: Rule) -> tuple[int, ...]:
        return ()


class Wave:
    """Synchronizes the scenarios of a wave, and triggers the fault once. The module's docstring explains waves."""

    def __init__(self, fault: ProcessFault, scene: Scene, size: int) -> None:
        self.fault = fault
        self.started = self.ended = 0.0
        """The start and the end of the fault, in seconds since 1970."""

        self._scene = scene
        self._missing = size
        self._acting = size
        self._all_prepared = asyncio.Event()
        self._go = asyncio.Event()
        self._all_acted = asyncio.Event()
        self._over = asyncio.Event()

    def injection(self, scenario: str) -> Injection:
        return Injection(scenario, self.fault.name, ProcessPlace())

    def herd(self, bench: Bench, namespace: str) -> NoHerd:
        return NoHerd(bench, namespace, self)

    async def prepared(self, *, ready: bool) -> None:
        """Wait until all runs are prepared. A run that is not ready leaves the wave."""
        self._missing -= 1
        if not ready:
            self._left_out()
        if not self._missing:
            self._all_prepared.set()
        if ready:
            await self._go.wait()

    async def acted(self) -> None:
        """Report that the user of one run has acted. If the fault loses the users' changes, wait until the fault has
        ended.
        """
        self._left_out()
        if self.fault.loses_acts:
            await self._over.wait()

    async def strike(self) -> None:
        """Wait for the runs, and let the fault happen."""
        await self._all_prepared.wait()
        await asyncio.to_thread(self.fault.before, self._scene)
        self._go.set()
        try:
            async with asyncio.timeout(ACTED_WITHIN_S):
                await self._all_acted.wait()
        except TimeoutError:
            pass
        await asyncio.sleep(STRIKES_AFTER_S)
        self.started = time.time()
        await asyncio.to_thread(self.fault.strike, self._scene)
        if self.fault.loses_acts:
            await asyncio.sleep(self.fault.noticed_s)
        self.ended = time.time()
        self._over.set()

    def _left_out(self) -> None:
        self._acting -= 1
        if self._acting <= 0:
            self._all_acted.set()


@asynccontextmanager
async def scene_of(bench: Bench, fault: ProcessFault) -> AsyncIterator[Scene]:
    """Run the controllers of a wave while the block runs."""
    directory = bench.directory / fault.name
    directory.mkdir()
    stack = await asyncio.to_thread(_started, bench.plane, directory, fault.controllers)
    try:
        yield Scene(bench.plane, stack[1], directory)
    finally:
        await asyncio.to_thread(stack[0].close)


def _started(plane: ControlPlane, directory: Path, count: int) -> tuple[ExitStack, list[ControllerProcess]]:
    stack = ExitStack()
    flags = ("--disruption-budgets", *(LEASE if count > 1 else ("--no-leader-elect",)))
    found = [
        stack.enter_context(controller_process(plane, directory, *flags, wait=number == 0)) for number in range(count)
    ]
    return stack, found


def controllers_that_ended(scene: Scene, fault: ProcessFault) -> Iterator[str]:
    """The controllers that ended, although the fault does not end them."""
    ended = [each for each in scene.controllers if each.process.poll() is not None]
    lost = [each for each in ended if LEASE_LOST in each.log.read_text().splitlines()[-1]]
    if fault.loses_lease and len(ended) == len(lost) == 1:
        return
    for each in ended:
        yield f"a controller ended with {each.process.returncode}: {each.log.read_text()[-600:]}"
