"""Checks whether another controller, called a second writer, reconciles the same objects.

If two controllers reconcile the same object, each controller deletes the VMs of the other controller. The other
controller can be KubeVirt's virt-controller. A kind is shared if both controllers can reconcile the kind in the same
API group. A recent write is a status that virt-controller has written within the last ten minutes. The first row that
applies decides:

fact                                                   result
    KubeVirt is not installed, or no kind is shared        no second writer
    the permission to read KubeVirt's objects is missing   recent write: second writer; otherwise: unknown
    the Deployment virt-controller does not exist          recent write: second writer; otherwise: no second writer
    its flags give workers to a loop for a shared kind     second writer
    at the deadline, the Deployment is still rolling out   second writer, because Pods with other flags may still run
    all other cases                                        no second writer

If the result is unknown, the controller does not start. virt-controller may run although no write is recent, because it
writes no status while nothing changes. The error message names the possible remedies, for example
`--no-second-writer-check`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple, TypeAlias

import structlog
from msgspec import Struct, structs

from controller.config.modes import Mode, mode_beside
from controller.config.settings import Config, groups_in, shared_with_kubevirt
from controller.kinds import Kind, names_of
from controller.runtime.execute.requests import Requests
from controller.takeover.discovery import Absent, Hidden, Write, find_kubevirt, get_virt_controller, latest_write
from controller.takeover.virt_controller import LOOPS, VIRT_CONTROLLER, KubeVirt, active_loops, is_rolled_out
from informers.errors import Forbidden, NotFound

log = structlog.get_logger()

RECENT: Final = timedelta(minutes=10)
"""The maximum age of a recent write. After a recent write, the check assumes that the writer still runs."""

PAUSE_S: Final = 1.0
"""The time between two requests for a Deployment that is rolling out, in seconds."""


class SecondWriter(Struct, frozen=True):
    """Another controller reconciles the same kinds, or may do so.

    `evidence` is the fact that shows the other controller. `is_certain` is False during a rollout of virt-controller.
    During the rollout, some old Pods may still reconcile the same kinds.
    """

    evidence: str
    is_certain: bool = True

    def __str__(self) -> str:
        return (
            f"{self.evidence}, but two controllers must not reconcile the same objects: stop KubeVirt's loops with "
            "'vmherd takeover', or use other API groups with --mode alongside, or write nothing with --observe"
        )


class Undetermined(Struct, frozen=True):
    """The check could not find out whether another controller reconciles the same kinds.

    The field `why` is the reason.
    """

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
    """Finds out whether virt-controller recently wrote the status of an object of a shared kind."""

    client: Requests
    config: Config
    kinds: tuple[Kind[Any], ...]
    now: Callable[[], datetime]
    advises: bool = True

    async def find_recent(self) -> SecondWriter | None:
        """Return a SecondWriter if virt-controller recently wrote a status in the watched namespaces. Otherwise return
        None.
        """
        for resource in map(self.config.resource_of, self.kinds):
            for namespace in self.config.namespaces:
                write = await _latest_write(self.client, resource.path(namespace))
                now = self.now()
                if write is not None and now - write.at < RECENT:
                    return SecondWriter(_describe(write, resource.name, now))
        return None


async def decide_mode(client: Requests, config: Config) -> Config:
    """Replace the mode `auto` by the mode that fits this cluster. Return a configuration with another mode unchanged.

    The mode depends on whether KubeVirt is installed. If the API server forbids a list of the KubeVirt objects, their
    kind is served. So KubeVirt counts as installed. If a request fails for another reason, raise ApiError or
    msgspec.DecodeError.
    """
    if config.mode != Mode.AUTO:
        return config
    installation = await find_kubevirt(client, config.kubevirt_namespace)
    mode = mode_beside(kubevirt=not isinstance(installation, Absent))
    return structs.replace(config, mode=mode.value, **groups_in(mode))


async def find_second_writer(
    client: Requests, config: Config, *, now: Callable[[], datetime], deadline: float, advises: bool = True
) -> tuple[Objection, ...]:
    """Return the reasons why the controller must not start, or an empty tuple if there is no reason.

    If the Deployment virt-controller is rolling out, wait for the end of the rollout, but at most until `deadline`.
    `deadline` is a time of the running loop. If `advises` is True, log a warning about an unsuitable mode or a missing
    virt-controller. If a request fails, raise ApiError or msgspec.DecodeError.
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
    """Return why the controller must not start beside this KubeVirt, or None if there is no reason."""
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


async def _latest_write(client: Requests, path: str) -> Write | None:
    """Return the last status that virt-controller wrote in a collection, or None if there is no such status.

    Return None also if the kind is not served or may not be listed. Other checks report these problems.
    """
    try:
        return await latest_write(client, path, manager=VIRT_CONTROLLER)
    except (Forbidden, NotFound):
        return None


def _describe(write: Write, kind: str, now: datetime) -> str:
    ago_s = max(0, round((now - write.at).total_seconds()))
    return f"{VIRT_CONTROLLER} wrote the status of {kind} {write.key} {ago_s}s ago"


__all__ = ["RECENT", "Objection", "SecondWriter", "Undetermined", "decide_mode", "find_second_writer"]
