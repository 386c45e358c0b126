"""Before anything starts: is everything there that the controller needs, and if not, what would mend it.

Four questions, in this order: does the API server answer and know us; may we do all that we are going to do; does the
cluster have the kinds that we reconcile; does nobody else reconcile them. Whatever is wrong with the last three is told
in one go. A server that does not answer is waited for, but not for ever: a Pod that gives up shows in
`kubectl get pods` that something is amiss.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, TypeAlias

import msgspec
import structlog
from msgspec import Struct

from controller.config.modes import Mode
from controller.config.settings import Config
from controller.kinds import KINDS, Kind, accesses
from controller.kubevirt.resources import KUBEVIRT_GROUP
from controller.preflight.discovery import is_served
from controller.preflight.permissions import (
    MissingPermission,
    Permission,
    missing_permissions,
    permissions_needed,
)
from controller.preflight.second_writer import Objection, decide_mode, find_second_writer
from controller.runtime.requests import REQUEST_TIMEOUT_S, Requests
from informers.errors import (
    ApiError,
    Forbidden,
    NotFound,
    ServerError,
    StatusError,
    TooManyRequests,
    TransportError,
    Unauthorized,
)

log = structlog.get_logger()

PATIENCE_S = 10.0
"""How long a start waits for what may still be on its way: a server that restarts, a CRD that was just applied."""

PAUSE_S = 1.0


class NeededKind(Struct, frozen=True):
    """A resource that has to be served, and what to do where it is not."""

    group: str
    version: str
    plural: str
    mend: str

    @property
    def name(self) -> str:
        return f"{self.plural}.{self.group}"


class NoAnswer(Struct, frozen=True):
    why: str

    def __str__(self) -> str:
        return f"the API server does not answer: {self.why}; see that it runs, and that the kubeconfig means this one"


class NotRecognized(Struct, frozen=True):
    why: str

    def __str__(self) -> str:
        return f"the API server does not accept our credentials ({self.why}): renew the token or certificate in use"


class MissingKind(Struct, frozen=True):
    kind: NeededKind

    def __str__(self) -> str:
        return f"the cluster has no {self.kind.name} in version {self.kind.version}: {self.kind.mend}"


class UnservedKind(Struct, frozen=True):
    """Its CustomResourceDefinition is there, and yet the API server does not serve it."""

    kind: NeededKind
    why: str

    def __str__(self) -> str:
        return (
            f"the cluster does not serve {self.kind.name} in version {self.kind.version} ({self.why}): "
            f"see 'kubectl describe crd {self.kind.name}'"
        )


Problem: TypeAlias = NoAnswer | NotRecognized | MissingKind | UnservedKind | MissingPermission | Objection


class StartupError(Exception):
    """The controller cannot start. Each problem is one line for people; `str()` has them all."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


def kinds_needed(config: Config) -> tuple[NeededKind, ...]:
    """The kinds without which there is nothing to do."""
    owners = (
        NeededKind(
            config.group_of(kind),
            kind.version,
            kind.plural,
            mend=f"{_mend(kind, config.mode)}, or set --{kind.name}-group to the group that it has",
        )
        for kind in KINDS
    )
    children = (
        NeededKind(
            each.resource.group,
            each.resource.version,
            each.resource.plural,
            mend="install KubeVirt, or try it out with 'vmherd sandbox up'",
        )
        for each in accesses()
        if each.is_cached and each.resource.group == KUBEVIRT_GROUP
    )
    return (*owners, *children)


def _mend(kind: Kind[Any], mode: str) -> str:
    """What to do if the kind's definition is not there."""
    if mode == Mode.TAKEOVER and kind.loop_flag:
        return "it comes with KubeVirt"
    if mode == Mode.ALONGSIDE:
        return "the chart brings its definition for --mode alongside, which auto comes to beside a KubeVirt"
    return "kubectl apply -f manifests/crds/, or crds.enabled=true in the chart's values"


async def resolve_mode(client: Requests, config: Config, *, patience_s: float = PATIENCE_S) -> Config:
    """The configuration with the mode that `auto` comes to in this cluster. Raises StartupError."""
    if config.mode != Mode.AUTO:
        return config
    await reach(client, patience_s=patience_s)
    async with _failures_in_words():
        return await decide_mode(client, config)


async def check(
    client: Requests, config: Config, *, now: Callable[[], datetime], patience_s: float = PATIENCE_S
) -> None:
    """Raise StartupError with everything that is in the way; return when nothing is. `now` is the wall clock."""
    await reach(client, patience_s=patience_s)
    give_up = asyncio.get_running_loop().time() + patience_s
    async with _failures_in_words():
        problems: list[Problem] = list(await _missing_permissions(client, permissions_needed(config)))
        for kind in kinds_needed(config):
            # Whoever has to mend something anyway need not wait for what may never come.
            problems += await missing_kind(client, kind, give_up=0.0 if problems else give_up)
        objections = await find_second_writer(client, config, now=now, give_up=0.0 if problems else give_up)
    if config.observe:
        for objection in objections:
            log.warning("would not start", why=str(objection))
    else:
        problems += objections
    if problems:
        raise StartupError(*problems)


async def _missing_permissions(client: Requests, needed: Sequence[Permission]) -> tuple[MissingPermission, ...]:
    """What is refused twice: a server that has just started has not read its roles yet, and refuses everybody."""
    if await missing_permissions(client, needed):
        await asyncio.sleep(PAUSE_S)
        return await missing_permissions(client, needed)
    return ()


@asynccontextmanager
async def _failures_in_words() -> AsyncIterator[None]:
    """Make a question that got no answer into a problem. Raises StartupError."""
    try:
        yield
    except Unauthorized as error:
        raise StartupError(NotRecognized(str(error))) from error
    except ApiError as error:
        raise StartupError(NoAnswer(str(error))) from error
    except msgspec.DecodeError as error:
        raise StartupError(NoAnswer("whatever answers in its place speaks another language")) from error


async def reach(client: Requests, *, patience_s: float) -> None:
    """Return when the API server answers. Raises StartupError when it does not in time, or does not know us."""
    give_up = asyncio.get_running_loop().time() + patience_s
    told = ""
    while True:
        try:
            await client.request("GET", "/version", timeout_s=REQUEST_TIMEOUT_S)
        except Unauthorized as error:
            raise StartupError(NotRecognized(str(error))) from error
        except (TransportError, ServerError, TooManyRequests) as error:
            if asyncio.get_running_loop().time() >= give_up:
                raise StartupError(NoAnswer(str(error))) from error
            if str(error) != told:
                told = str(error)
                log.warning("waiting for the API server", why=told, patience_s=patience_s)
            await asyncio.sleep(PAUSE_S)
        except StatusError:
            return  # an answer all the same: what it forbids here, it may allow where it matters
        else:
            return


class _Condition(Struct, frozen=True):
    status: str = ""
    message: str | None = None


class _Definition(Struct, frozen=True):
    class Status(Struct, frozen=True):
        conditions: tuple[_Condition, ...] | None = None

    status: Status | None = None


_decode_definition = msgspec.json.Decoder(_Definition).decode


async def missing_kind(client: Requests, kind: NeededKind, *, give_up: float) -> tuple[Problem, ...]:
    """Empty when the kind is served. One that is surely not there is told at once, one on its way is waited for.

    `give_up` is a time of the running loop. Raises ApiError where the API server cannot say.
    """
    told = False
    while not await is_served(client, f"/apis/{kind.group}/{kind.version}", kind.plural):
        problem, is_sure = await _why_unserved(client, kind)
        if is_sure or asyncio.get_running_loop().time() >= give_up:
            return (problem,)
        if not told:
            told = True
            log.warning("waiting for a kind to be served", kind=kind.name, version=kind.version)
        await asyncio.sleep(PAUSE_S)
    return ()


async def _why_unserved(client: Requests, kind: NeededKind) -> tuple[Problem, bool]:
    """What is wrong, and whether that is sure to last: nobody installed it, or it does not work, perhaps not yet."""
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{kind.name}"
    try:
        body = await client.request("GET", path, timeout_s=REQUEST_TIMEOUT_S)
    except NotFound:
        return MissingKind(kind), True
    except Forbidden:
        return MissingKind(kind), False  # the usual case in a cluster, where nothing else needs this permission
    status = _decode_definition(body).status
    conditions = (status and status.conditions) or ()
    faults = [condition.message for condition in conditions if condition.status == "False" and condition.message]
    faults.append("its definition is there, without this version or too new")
    return UnservedKind(kind, faults[0]), False
