"""Whether somebody else reconciles the same objects: two controllers on one object fight, and delete each other's VMs.

The one that can be met is KubeVirt's virt-controller. What tells, from the surest sign on:

    no KubeVirt, or none that we share a kind with    nobody
    the flags of its Deployment                       its loops work, or rest
    the Deployment is not rolled out yet              old Pods may still work: waited for, and then told
    there is no Deployment                            somebody, if virt-controller wrote one of our statuses lately
    we may not look                                   the same; and without such a write, nobody knows

Where nobody knows, the controller does not start: a set that is at rest shows no fresh writes, whoever watches it.
What is in the way is told in one line, with the ways out, and `--no-second-writer-check` is one of them.
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
from controller.preflight.discovery import Absent, Hidden, Write, find_kubevirt, get_virt_controller, latest_write
from controller.preflight.virt_controller import LOOPS, VIRT_CONTROLLER, KubeVirt, is_rolled_out, working_loops
from controller.runtime.requests import Requests
from informers.errors import Forbidden, NotFound

log = structlog.get_logger()

FRESH: Final = timedelta(minutes=10)
"""A write that is younger than this was made by somebody who is still there."""

PAUSE_S: Final = 1.0


class SecondWriter(Struct, frozen=True):
    """Somebody else works on our kinds."""

    seen: str

    def __str__(self) -> str:
        return (
            f"{self.seen}, and two controllers would fight: have its loops rest with 'vmherd takeover', or leave them "
            "alone with --mode alongside, or only look on with --observe"
        )


class Unseen(Struct, frozen=True):
    """Nobody can tell whether somebody else works on our kinds."""

    kinds: tuple[str, ...]
    why: str

    def __str__(self) -> str:
        return (
            f"cannot tell whether KubeVirt's virt-controller works on {' and '.join(self.kinds)}, too ({self.why}): "
            "a role has to allow list of kubevirts.kubevirt.io and get of deployments.apps "
            f'"{VIRT_CONTROLLER}"; or choose --mode alongside; or, if you are sure, --no-second-writer-check'
        )


Objection: TypeAlias = SecondWriter | Unseen


class Trail(NamedTuple):
    """What virt-controller leaves on the kinds that we share with it: its name, and the time of its writes."""

    client: Requests
    config: Config
    kinds: tuple[Kind[Any], ...]
    now: Callable[[], datetime]

    async def follow(self) -> SecondWriter | None:
        """Whether it wrote a status lately, in the namespaces that we work in."""
        for resource in (kind.resource() for kind in self.kinds):
            for namespace in self.config.namespaces:
                write = await _latest_write(self.client, resource.path(namespace))
                now = self.now()
                if write is not None and now - write.at < FRESH:
                    return SecondWriter(_words_of(write, resource.name, now))
        return None


async def decide_mode(client: Requests, config: Config) -> Config:
    """The configuration with `auto` made into a mode. A KubeVirt that we may not see is taken to be there.

    Raises ApiError, msgspec.DecodeError.
    """
    if config.mode != Mode.AUTO:
        return config
    seen = await find_kubevirt(client, config.kubevirt_namespace)
    mode = mode_beside(kubevirt=not isinstance(seen, Absent))
    return structs.replace(config, mode=mode.value, **groups_in(mode))


async def find_second_writer(
    client: Requests, config: Config, *, now: Callable[[], datetime], give_up: float
) -> tuple[Objection, ...]:
    """What speaks against starting; empty where nothing does. `give_up` is a time of the running loop.

    Raises ApiError, msgspec.DecodeError.
    """
    kinds = shared_with_kubevirt(config)
    if not kinds or not config.second_writer_check:
        return ()
    seen = await find_kubevirt(client, config.kubevirt_namespace)
    if isinstance(seen, Absent):
        if config.mode == Mode.TAKEOVER:
            log.warning("there is no KubeVirt to take over from: --mode standalone reports more")
        return ()
    trail = Trail(client, config, kinds, now)
    if isinstance(seen, Hidden):
        return (await trail.follow() or Unseen(names_of(kinds), seen.why),)
    looks = [await _look_at(trail, kubevirt, give_up) for kubevirt in seen.kubevirts]
    return tuple(objection for objection in looks if objection is not None)


async def _look_at(trail: Trail, kubevirt: KubeVirt, give_up: float) -> Objection | None:
    name = f"{kubevirt.metadata.namespace}/{VIRT_CONTROLLER}"
    names = names_of(trail.kinds)
    while True:
        try:
            deployment = await get_virt_controller(trail.client, kubevirt.metadata)
        except NotFound:
            log.warning("KubeVirt has no virt-controller yet", deployment=name, kinds=names)
            return await trail.follow()
        except Forbidden as error:
            return await trail.follow() or Unseen(names, str(error))
        if working := working_loops(deployment, names):
            missing = " ".join(f"{LOOPS[kind]}=0" for kind in working)
            return SecondWriter(f"KubeVirt works on {' and '.join(working)} (Deployment {name} has no {missing})")
        if is_rolled_out(deployment):
            if trail.config.mode == Mode.STANDALONE:
                log.warning("the loops of KubeVirt rest: --mode takeover knows its status fields", deployment=name)
            return None
        if asyncio.get_running_loop().time() >= give_up:
            told = " and ".join(names)
            return SecondWriter(f"KubeVirt may still work on {told} (Deployment {name} is rolling out)")
        await asyncio.sleep(PAUSE_S)


async def _latest_write(client: Requests, path: str) -> Write | None:
    """None as well where we may not look: the check of our permissions has told so."""
    try:
        return await latest_write(client, path, manager=VIRT_CONTROLLER)
    except (Forbidden, NotFound):
        return None


def _words_of(write: Write, kind: str, now: datetime) -> str:
    ago_s = max(0, round((now - write.at).total_seconds()))
    return f"{VIRT_CONTROLLER} wrote the status of {kind} {write.key} {ago_s}s ago"


__all__ = ["FRESH", "Objection", "SecondWriter", "Unseen", "decide_mode", "find_second_writer"]
