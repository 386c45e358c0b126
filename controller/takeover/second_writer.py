"""Checks whether another controller, a second writer, reconciles the same objects: each deletes the other's VMs.

A kind is shared if KubeVirt's virt-controller can reconcile it in the same API group. A recent write is a status that
it has written within the last ten minutes. The first row that applies decides:

    fact                                                   result
    KubeVirt is not installed, or no kind is shared        no second writer
    the permission to read KubeVirt's objects is missing   recent write: second writer; otherwise: unknown
    the Deployment virt-controller does not exist          recent write: second writer; otherwise: no second writer
    its flags give workers to a loop for a shared kind     second writer
    at the deadline, the Deployment is still rolling out   second writer, because Pods with other flags may still run
    all other cases                                        no second writer

If the result is unknown, the controller does not start: virt-controller writes no status while nothing changes.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple, TypeAlias

import structlog
from msgspec import Struct, structs

from controller.config.modes import Mode
from controller.config.settings import Config, groups_in, shared_with_kubevirt
from controller.kinds import Kind, names_of
from controller.leaderelection.other_leader import OtherLeader, OtherLeaders
from controller.runtime.actions import Notice
from controller.runtime.execute.requests import Requests
from controller.takeover.discovery import Absent, Hidden, find_kubevirt, get_virt_controller, latest_write
from controller.takeover.other_process import OtherProcess, WriterSample
from controller.takeover.virt_controller import LOOPS, VIRT_CONTROLLER, KubeVirt, active_loops, is_rolled_out
from informers.errors import ApiError, Forbidden, GateClosed, NotFound
from informers.resource import UNDECODABLE

log = structlog.get_logger()

RECENT: Final = timedelta(minutes=10)
PAUSE_S: Final = 1.0


class SecondWriter(Struct, frozen=True):
    """The fact in `evidence` is not certain during a rollout of virt-controller, when some old Pods may still run."""

    evidence: str
    is_certain: bool = True
    stops = True

    def __str__(self) -> str:
        return (
            f"{self.evidence}, but two controllers must not reconcile the same objects: stop KubeVirt's loops with "
            "'vmherd takeover', or use other API groups with --mode alongside, or write nothing with --observe"
        )


class Undetermined(Struct, frozen=True):
    kinds: tuple[str, ...]
    why: str

    def __str__(self) -> str:
        return (
            f"cannot check whether KubeVirt's virt-controller also reconciles {' and '.join(self.kinds)} ({self.why}): "
            f'grant list of kubevirts.kubevirt.io and get of deployments.apps "{VIRT_CONTROLLER}" with a role, '
            "or use --mode alongside, or disable this check with --no-second-writer-check"
        )


Objection: TypeAlias = SecondWriter | Undetermined


class StatusWrites(NamedTuple):
    client: Requests
    config: Config
    kinds: tuple[Kind[Any], ...]
    now: Callable[[], datetime]
    advises: bool

    async def find_recent(self) -> SecondWriter | None:
        """Return a recent write in the watched namespaces. Another check reports a kind that may not be listed."""
        for resource in map(self.config.resource_of, self.kinds):
            for namespace in self.config.namespaces:
                try:
                    write = await latest_write(self.client, resource.path(namespace))
                except Forbidden:
                    continue
                now = self.now()
                if write is not None and now - write.at < RECENT:
                    ago_s = max(0, round((now - write.at).total_seconds()))
                    what = f"the status of {resource.name} {write.key}"
                    return SecondWriter(f"{VIRT_CONTROLLER} wrote {what} {ago_s}s ago")
        return None


async def decide_mode(client: Requests, config: Config) -> Config:
    """Replace `auto` by the mode that fits this cluster. A kind that may not be listed is installed. Raise ApiError."""
    if config.mode != Mode.AUTO:
        return config
    installation = await find_kubevirt(client, config.kubevirt_namespace)
    mode = Mode.STANDALONE if isinstance(installation, Absent) else Mode.ALONGSIDE
    return structs.replace(config, mode=mode.value, **groups_in(mode))


async def find_second_writer(
    client: Requests, config: Config, *, now: Callable[[], datetime], deadline: float, advises: bool = True
) -> tuple[Objection, ...]:
    """Return the reasons why the controller must not start. Raise ApiError or msgspec.DecodeError.

    While the Deployment virt-controller is rolling out, wait until `deadline`, a time of the running loop. If `advises`
    is True, log a warning about an unsuitable mode or a missing virt-controller.
    """
    kinds = shared_with_kubevirt(config)
    if not kinds or not config.second_writer_check:
        return ()
    installation = await find_kubevirt(client, config.kubevirt_namespace)
    if isinstance(installation, Absent):
        if config.mode == Mode.TAKEOVER and advises:
            log.warning("KubeVirt is not installed: use --mode standalone, which writes more status fields")
        return ()
    writes = StatusWrites(client, config, kinds, now, advises)
    if isinstance(installation, Hidden):
        return (await writes.find_recent() or Undetermined(names_of(kinds), installation.why),)
    objections = [await _check_kubevirt(writes, kubevirt, deadline) for kubevirt in installation.kubevirts]
    return tuple(objection for objection in objections if objection is not None)


async def _check_kubevirt(writes: StatusWrites, kubevirt: KubeVirt, deadline: float) -> Objection | None:
    name = f"{kubevirt.metadata.namespace}/{VIRT_CONTROLLER}"
    names = names_of(writes.kinds)
    while True:
        try:
            deployment = await get_virt_controller(writes.client, kubevirt.metadata)
        except NotFound:
            if writes.advises:
                log.warning("KubeVirt has no virt-controller yet", deployment=name, kinds=names)
            return await writes.find_recent()
        except Forbidden as error:
            return await writes.find_recent() or Undetermined(names, str(error))
        if active := active_loops(deployment, names):
            missing = " ".join(f"{LOOPS[kind]}=0" for kind in active)
            return SecondWriter(f"KubeVirt reconciles {' and '.join(active)} (Deployment {name} has no {missing})")
        if is_rolled_out(deployment):
            if writes.config.mode == Mode.STANDALONE and writes.advises:
                log.warning(
                    "KubeVirt's loops are stopped: use --mode takeover, which writes only KubeVirt's status fields",
                    deployment=name,
                )
            return None
        if asyncio.get_running_loop().time() >= deadline:
            kinds = " and ".join(names)
            evidence = f"KubeVirt may still reconcile {kinds} (Deployment {name} is rolling out)"
            return SecondWriter(evidence, is_certain=False)
        await asyncio.sleep(PAUSE_S)


INTERVAL_S: Final = 60.0

FOUND: Final = "SecondWriter"
GONE: Final = "SecondWriterGone"


Announce: TypeAlias = Callable[[Notice], Awaitable[None]]
Found: TypeAlias = SecondWriter | OtherLeader | OtherProcess
Look: TypeAlias = Callable[[], Awaitable[Found | None]]


class SecondWriterWatch:
    """Checks every minute whether another controller, named by `reason`, writes the same objects.

    While KubeVirt's loops run, or another process leads with another lease, this process writes nothing. If two
    processes outside the cluster lead with different leases, they may find each other. Then both stop writing until an
    administrator ends one of them. A process that only its writes show is named, and writes go on.
    """

    def __init__(
        self, client: Requests, config: Config, *, now: Callable[[], datetime], report: Callable[[bool], None]
    ) -> None:
        self.reason = ""
        self._client = client
        self._config = config
        self._now = now
        self._report = report
        self._is_stopped = False
        self._found: dict[str, Found | None] = {}

    def gate(self) -> None:
        """Raise GateClosed while a second writer stops the writes. The client calls this method before each write."""
        if self._is_stopped:
            raise GateClosed(f"not sent: {self.reason}")

    def ready(self) -> str | None:
        return self.reason or None

    async def run(self, announce: Announce, sample: WriterSample) -> None:
        """Check every `INTERVAL_S` seconds until cancelled. If a check fails, the last result stays valid."""
        looks = dict(self._looks(sample))
        try:
            while True:
                await asyncio.sleep(INTERVAL_S)
                for name, look in looks.items():
                    await self._check(name, look, announce)
        finally:
            self._set("", stops=False)

    def _looks(self, sample: WriterSample) -> Iterator[tuple[str, Look]]:
        config = self._config
        if config.observe:
            return
        if config.second_writer_check and shared_with_kubevirt(config):
            yield "loops of KubeVirt", self._find_loops
        yield "another leader", OtherLeaders(self._client, config).find
        yield "another vmherd", sample.find

    async def _find_loops(self) -> SecondWriter | None:
        objections = await find_second_writer(self._client, self._config, now=self._now, deadline=0.0, advises=False)
        found = [each.evidence for each in objections if isinstance(each, SecondWriter) and each.is_certain]
        return SecondWriter("; ".join(found)) if found else None

    async def _check(self, name: str, look: Look, announce: Announce) -> None:
        try:
            self._found[name] = await look()
        except (ApiError, TimeoutError, *UNDECODABLE) as error:
            log.debug("cannot look for a second writer", what=name, why=str(error))
            return
        found = [each for each in self._found.values() if each is not None]
        reason, stops = "; ".join(each.evidence for each in found), any(each.stops for each in found)
        before, was_stopped = self.reason, self._is_stopped
        if reason and (not before or (stops and not was_stopped)):
            done = "vmherd has stopped writing" if stops else "vmherd does not work alone"
            log.error(f"{done}, because another controller works on the same objects", evidence=reason)
            await announce(Notice(reason=FOUND, message=f"{done}: {'; '.join(map(str, found))}"))
        self._set(reason, stops=stops)
        if before and not reason:
            again = "vmherd writes again" if was_stopped else "vmherd works alone again"
            log.info(f"{again}, because the other controller has stopped")
            await announce(Notice(reason=GONE, message=f"{again}: the other controller has stopped", warning=False))

    def _set(self, reason: str, *, stops: bool) -> None:
        self.reason, self._is_stopped = reason, stops
        self._report(bool(reason))
