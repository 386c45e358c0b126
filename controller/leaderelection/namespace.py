"""Chooses the namespace of the lease for a process outside a cluster.

A controller in the cluster usually has its lease in its own namespace. A second process, for example on the computer of
a developer, must use the same lease. If the second process used another lease, two processes would lead and write at
the same time.
"""

from __future__ import annotations

import structlog
from msgspec import structs

from controller.config.settings import Config
from controller.leaderelection.lease import LEASES
from controller.runtime.execute.requests import Requests
from informers.errors import Forbidden

log = structlog.get_logger()

USUAL = "default"
"""The namespace of the lease if there is no lease of this name yet."""


class SeveralLeases(Exception):
    """Leases of this name exist in several namespaces, so the user has to choose one. `str()` is one line for users."""


async def with_lease_namespace(client: Requests, config: Config) -> Config:
    """Return the configuration with the namespace of the lease.

    If the configuration names a namespace, nothing changes. Otherwise use the namespace of the existing lease with this
    name. If there is no such lease, use `default`. Raise SeveralLeases if several namespaces have such a lease, and
    ApiError if a request fails.
    """
    if config.leader_election_namespace:
        return config
    return structs.replace(config, leader_election_namespace=await _existing(client, config) or USUAL)


async def _existing(client: Requests, config: Config) -> str:
    if not config.elects:
        return ""
    name = config.leader_election_id
    try:
        answer = await client.request("GET", LEASES.path(""), params={"fieldSelector": f"metadata.name={name}"})
    except Forbidden as error:
        log.warning("cannot look for the lease of another vmherd", lease=name, why=str(error), namespace=USUAL)
        return ""
    leases = LEASES.decode_page(answer).items or ()
    namespaces = sorted(lease.metadata.namespace for lease in leases if lease.metadata.name == name)
    if len(namespaces) > 1:
        raise SeveralLeases(
            f"the namespaces {', '.join(namespaces)} have a lease {name}: choose one with --leader-election-namespace"
        )
    if not namespaces:
        return ""
    log.info("using the lease that exists", lease=name, namespace=namespaces[0])
    return namespaces[0]
