"""Checks whether another vmherd is the leader with another lease: before the start, and every minute while it leads.

A process outside the cluster may choose another namespace than a Pod, so it looks for other leases, and stops writing.
The role of a Pod does not allow this. A lease that changes while this process looks has a live holder.
"""

import asyncio

import structlog
from msgspec import Struct, structs

from controller.access import Permission, missing_permissions
from controller.config.settings import Config
from controller.leaderelection.lease import LEASES, Lease
from controller.runtime.execute.requests import Requests
from informers.errors import Forbidden

USUAL = "default"


class SeveralLeases(Exception):
    """Several namespaces have a lease with the configured name, so the user has to choose one. `str()` is for users."""


async def leases_named(client: Requests, name: str, namespace: str = "") -> tuple[Lease, ...]:
    """Return the leases with this name in a namespace, or in all namespaces. Raise ApiError if the request fails."""
    answer = await client.request("GET", LEASES.path(namespace), params={"fieldSelector": f"metadata.name={name}"})
    return tuple(lease for lease in LEASES.decode_page(answer).items or () if lease.metadata.name == name)


async def with_lease_namespace(client: Requests, config: Config) -> Config:
    """Choose the set namespace, that of the existing lease, or `default`. Raise SeveralLeases, ApiError."""
    if config.leader_election_namespace:
        return config
    return structs.replace(config, leader_election_namespace=await _existing(client, config) or USUAL)


async def _existing(client: Requests, config: Config) -> str:
    if not config.elects:
        return ""
    name = config.leader_election_id
    try:
        leases = await leases_named(client, name)
    except Forbidden as error:
        log.warning("cannot look for the lease of another vmherd", lease=name, why=str(error), namespace=USUAL)
        return ""
    namespaces = sorted(lease.metadata.namespace for lease in leases)
    if len(namespaces) > 1:
        raise SeveralLeases(
            f"the namespaces {', '.join(namespaces)} have a lease {name}: choose one with --leader-election-namespace"
        )
    if not namespaces:
        return ""
    log.info("using the lease that exists", lease=name, namespace=namespaces[0])
    return namespaces[0]


log = structlog.get_logger()

PAUSE_S = 1.0
MARGIN_S = 2 * PAUSE_S
"""The check lasts this much longer than the duration of the lease, because reads take time."""

LIST_LEASES = Permission(LEASES.group, LEASES.plural, "list")


class OtherLeader(Struct, frozen=True):
    """Another vmherd is the leader. Its lease has the configured name, but is in another namespace."""

    holder: str
    namespace: str
    name: str
    stops = True

    @property
    def evidence(self) -> str:
        return f"{self.holder} already leads with the lease {self.name} in namespace {self.namespace}"

    def __str__(self) -> str:
        return (
            f"{self.evidence}, but two leaders must not reconcile the same objects: wait for that lease with "
            f"--leader-election-namespace {self.namespace}, or write nothing with --observe, or use another "
            "--leader-election-id if the two never reconcile the same objects"
        )


async def find_other_leader(client: Requests, config: Config) -> OtherLeader | None:
    """Return a holder that renews a lease of the same name in another namespace while this function waits, or None.

    It waits for the longest duration of the leases. Return None in a Pod, and if the lease of the own namespace has a
    live holder, for which this process waits. Raise ApiError or msgspec.DecodeError.
    """
    if config.in_pod or not config.elects:
        return None
    if await missing_permissions(client, (LIST_LEASES,)):
        log.warning("cannot look for another vmherd, because listing all leases is not allowed")
        return None
    first = await _held_leases(client, config.leader_election_id)
    if not _without(config.leader_election_namespace, first):
        return None
    return await _live_holder(client, config, first, leads=False)


async def _live_holder(client: Requests, config: Config, first: dict[str, Lease], *, leads: bool) -> OtherLeader | None:
    """Return the holder of another lease that changes, or None. Unless it `leads`, so does a change of its own."""
    own = None if leads else first.get(config.leader_election_namespace)
    others = _without(config.leader_election_namespace, first)
    longest_s = max(lease.record.lease_duration_seconds or config.lease_duration_s for lease in first.values())
    deadline = asyncio.get_running_loop().time() + longest_s + MARGIN_S
    log.info("another lease has a holder, looking whether it is alive", namespaces=sorted(others), within_s=longest_s)
    live: OtherLeader | None = None
    while asyncio.get_running_loop().time() < deadline:
        await asyncio.sleep(PAUSE_S)
        now = await _held_leases(client, config.leader_election_id)
        if not leads and _has_changed(own, now.get(config.leader_election_namespace)):
            return None
        for namespace, lease in _without(config.leader_election_namespace, now).items():
            if _has_changed(first.get(namespace), lease):
                live = OtherLeader(lease.holder, namespace, config.leader_election_id)
        if live is not None and own is None:
            return live
    return live


class OtherLeaders:
    def __init__(self, client: Requests, config: Config) -> None:
        self._client = client
        self._config = config
        self._before: dict[str, Lease] = {}
        self._may_look: bool | None = None if not config.in_pod and config.elects else False
        """None means that no request for the leases has succeeded yet."""

    async def find(self) -> OtherLeader | None:
        """Return a holder that changed another lease since the last call, or None. Raise ApiError, DecodeError."""
        if self._may_look is False:
            return None
        try:
            held = await _held_leases(self._client, self._config.leader_election_id)
        except Forbidden:
            # A starting API server may answer 403 to a user who has the permission.
            if self._may_look or not await missing_permissions(self._client, (LIST_LEASES,)):
                raise
            self._may_look = False
            return None
        self._may_look = True
        others = _without(self._config.leader_election_namespace, held)
        before, self._before = self._before, others
        if not any(_has_changed(before.get(namespace), lease) for namespace, lease in others.items()):
            return None
        return await _live_holder(self._client, self._config, others, leads=True)


async def _held_leases(client: Requests, name: str) -> dict[str, Lease]:
    return {lease.metadata.namespace: lease for lease in await leases_named(client, name) if lease.holder}


def _without(namespace: str, leases: dict[str, Lease]) -> dict[str, Lease]:
    return {each: lease for each, lease in leases.items() if each != namespace}


def _has_changed(before: Lease | None, now: Lease | None) -> bool:
    return now is not None and (before is None or before.metadata.resource_version != now.metadata.resource_version)
