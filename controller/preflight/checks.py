"""Checks whether the cluster has everything that the controller needs, before the controller starts.

All problems but the first (no answer) are reported together, each with a remedy. If the API server does not answer, the
program waits for a limited time and then exits with an error. `kubectl get pods` then shows the failed Pod.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, TypeAlias

import msgspec
import structlog
from msgspec import Struct

from controller.access import MissingPermission, Permission, missing_permissions
from controller.apimachinery.conditions import Condition
from controller.config.modes import Mode
from controller.config.settings import Config
from controller.kinds import KINDS, Kind, accesses
from controller.kubevirt.resources import KUBEVIRT_GROUP
from controller.leaderelection.other_leader import OtherLeader, find_other_leader, with_lease_namespace
from controller.preflight.permissions import permissions_needed
from controller.preflight.versions import check_version, with_served_versions
from controller.runtime.execute.requests import REQUEST_TIMEOUT_S, Requests
from controller.takeover.discovery import find_visible_kubevirt, is_served
from controller.takeover.second_writer import Objection, decide_mode, find_second_writer
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
from informers.resource import Resource

log = structlog.get_logger()

WAIT_S = 10.0
"""The longest time, in seconds, to wait for a restarting API server or for a new CRD."""

PAUSE_S = 1.0


class NeededKind(Struct, frozen=True):
    """What the API server has to serve unless it `is_optional`, or else the `remedy`."""

    resource: Resource[Any]
    remedy: str
    is_optional: bool = False
    other_versions: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.resource.name} in version {self.resource.version}"


Problem: TypeAlias = str | MissingPermission | OtherLeader | Objection
"""A reason why the controller cannot start. `str()` is one line with a remedy."""


class StartupError(Exception):
    """Says why the controller cannot start. The text of the exception has one line for each problem."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


def kinds_needed(config: Config) -> tuple[NeededKind, ...]:
    """Return the kinds that the API server has to serve: all kinds to reconcile, and all cached kinds of KubeVirt."""
    owners = (
        NeededKind(
            resource,
            remedy=f"{_remedy(kind, config.mode)}, or set --{kind.name}-group to its API group in this cluster",
            is_optional=kind.is_optional,
            other_versions=tuple(each for each in (kind.version, *kind.other_versions) if each != resource.version),
        )
        for kind, resource in ((kind, config.resource_of(kind)) for kind in KINDS)
    )
    children = (
        NeededKind(each.resource, remedy="install KubeVirt, or try vmherd in a sandbox with 'vmherd sandbox up'")
        for each in accesses()
        if each.is_cached and each.resource.group == KUBEVIRT_GROUP
    )
    return (*owners, *children)


def _remedy(kind: Kind[Any], mode: str) -> str:
    if mode == Mode.TAKEOVER and kind.loop_flag:
        return "install KubeVirt, which contains it"
    if mode == Mode.ALONGSIDE:
        return (
            "install its CustomResourceDefinition, which the chart contains for --mode alongside "
            "(auto selects this mode if KubeVirt is installed)"
        )
    return "run 'kubectl apply -f manifests/crds/', or set crds.enabled=true in the chart's values"


async def resolve(client: Requests, config: Config, *, wait_s: float = WAIT_S) -> Config:
    """Wait for the API server, and choose mode, versions and lease namespace. Raise StartupError, SeveralLeases."""
    async with _errors_as_problems():
        await reach(client, wait_s=wait_s)
        for choose in (decide_mode, with_served_versions, with_lease_namespace):
            config = await choose(client, config)
    return config


async def check(client: Requests, config: Config, *, now: Callable[[], datetime], wait_s: float = WAIT_S) -> None:
    """Raise StartupError with all problems. `now` returns the wall clock. `wait_s` is the longest wait in seconds."""
    async with _errors_as_problems():
        await reach(client, wait_s=wait_s)
        deadline = asyncio.get_running_loop().time() + wait_s
        problems: list[Problem] = list(await _missing_permissions(client, permissions_needed(config)))
        unserved: list[Problem] = []
        # Required kinds come first. If all of them are served, an optional kind does not stop the start.
        for kind in sorted(kinds_needed(config), key=lambda each: each.is_optional):
            if kind.is_optional and not unserved:
                unserved += await _check_optional(client, kind)
                continue
            # If there is already a problem, report it at once and do not wait for this kind.
            unserved += await missing_kind(client, kind, deadline=0.0 if problems or unserved else deadline)
        problems += unserved
        problems += check_version(config, await find_visible_kubevirt(client, config.kubevirt_namespace))
        objections = await find_second_writer(client, config, now=now, deadline=0.0 if problems else deadline)
        if not problems and (leader := await find_other_leader(client, config)):
            problems.append(leader)
    if config.observe:
        for objection in objections:
            log.warning("would not start without --observe", why=str(objection))
    else:
        problems += objections
    if problems:
        raise StartupError(*problems)


async def _missing_permissions(client: Requests, needed: Sequence[Permission]) -> tuple[MissingPermission, ...]:
    """Return the missing permissions, of the second answer: a new API server denies all until it knows the roles."""
    if await missing_permissions(client, needed):
        await asyncio.sleep(PAUSE_S)
        return await missing_permissions(client, needed)
    return ()


@asynccontextmanager
async def _errors_as_problems() -> AsyncIterator[None]:
    try:
        yield
    except Unauthorized as error:
        why = f"the API server does not accept the credentials ({error}): renew the token or the certificate"
        raise StartupError(why) from error
    except ApiError as error:
        raise StartupError(_no_answer(str(error))) from error
    except msgspec.DecodeError as error:
        raise StartupError(_no_answer("its address returns data that is not from an API server")) from error


def _no_answer(why: str) -> str:
    return f"the API server does not answer: {why}; check that it runs, and that the kubeconfig has its address"


async def reach(client: Requests, *, wait_s: float) -> None:
    """Wait until the API server accepts the credentials. Raise ApiError after `wait_s` seconds, or if it does not."""
    deadline = asyncio.get_running_loop().time() + wait_s
    reported = ""
    while True:
        try:
            await client.request("GET", "/version", timeout_s=REQUEST_TIMEOUT_S)
        except Unauthorized:
            raise
        except (TransportError, ServerError, TooManyRequests) as error:
            if asyncio.get_running_loop().time() >= deadline:
                raise
            if str(error) != reported:
                reported = str(error)
                log.warning("waiting for the API server", why=reported, wait_s=wait_s)
            await asyncio.sleep(PAUSE_S)
        except StatusError:
            return  # A server that denies /version has answered, and may allow the requests of the controller.
        else:
            return


async def _check_optional(client: Requests, kind: NeededKind) -> tuple[Problem, ...]:
    """Return a problem if another supported version is served, which the next start chooses. Else only warn."""
    resource = kind.resource
    if await is_served(client, resource.group_path, resource.plural):
        return ()
    for version in kind.other_versions:
        if await is_served(client, f"/apis/{resource.group}/{version}", resource.plural):
            return (_unserved(kind, f"it serves version {version}, which the next start uses"),)
    log.warning(
        "the cluster does not serve this kind: its objects are reconciled as soon as it does",
        kind=kind.resource.name,
        version=kind.resource.version,
        remedy=kind.remedy,
    )
    return ()


class _Definition(Struct, frozen=True):
    class Status(Struct, frozen=True):
        conditions: tuple[Condition, ...] | None = None

    status: Status | None = None


_decode_definition = msgspec.json.Decoder(_Definition).decode


async def missing_kind(client: Requests, kind: NeededKind, *, deadline: float) -> tuple[Problem, ...]:
    """Return the problem if a kind is not served until `deadline`, a time of the running loop. Raise ApiError."""
    reported = False
    while not await is_served(client, kind.resource.group_path, kind.resource.plural):
        problem, is_final = await _why_unserved(client, kind)
        if is_final or asyncio.get_running_loop().time() >= deadline:
            return (problem,)
        if not reported:
            reported = True
            log.warning("waiting for a kind to be served", kind=kind.resource.name, version=kind.resource.version)
        await asyncio.sleep(PAUSE_S)
    return ()


def _unserved(kind: NeededKind, why: str) -> str:
    return f"the cluster does not serve {kind} ({why}): run 'kubectl describe crd {kind.resource.name}' for details"


async def _why_unserved(client: Requests, kind: NeededKind) -> tuple[Problem, bool]:
    """Return the reason, and whether a wait is useless. It is not if the definition exists or may not be read."""
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{kind.resource.name}"
    missing = f"the cluster has no {kind}: {kind.remedy}"
    try:
        body = await client.request("GET", path, timeout_s=REQUEST_TIMEOUT_S)
    except NotFound:
        return missing, True
    except Forbidden:
        return missing, False  # This is usual: the role of the controller has no permission for this request.
    status = _decode_definition(body).status
    conditions = (status and status.conditions) or ()
    faults = [condition.message for condition in conditions if condition.status == "False" and condition.message]
    faults.append("its definition exists, but has no such version, or is not active yet")
    return _unserved(kind, faults[0]), False
