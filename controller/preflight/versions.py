"""Chooses the version of each kind that the controller reads and writes.

KubeVirt up to 1.6 serves pools only in `v1alpha1`. The controller uses the first version of a kind that the API server
serves. If the API server serves no supported version, the controller uses the newest version and waits for this
version.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import structs

from controller.config.settings import Config
from controller.kinds import KINDS, Kind
from controller.runtime.execute.requests import Requests
from controller.takeover.discovery import is_served
from informers.errors import ApiError
from informers.resource import Resource


async def with_served_versions(client: Requests, config: Config) -> Config:
    """Return the configuration with the API versions that the cluster serves.

    If the controller supports only one API version of a kind, the kind keeps this version. If a request for the served
    versions fails, return `config` unchanged. The checks before the start then report the problem.
    """
    versions = {}
    try:
        for kind in KINDS:
            if kind.older_versions:
                versions[kind.name] = await served_version(client, kind, config.group_of(kind)) or kind.version
    except (ApiError, msgspec.DecodeError):
        return config
    return structs.replace(config, versions=versions)


async def served_version(client: Requests, kind: Kind[Any], group: str) -> str:
    """Return the first version of the kind that the API server serves, or "" if no version is served."""
    for version in (kind.version, *kind.older_versions):
        if await is_served(client, f"/apis/{group}/{version}", kind.plural):
            return version
    return ""


async def served_resource(client: Requests, kind: Kind[Any], group: str = "") -> Resource[Any]:
    """Return the resource of the kind in the version that the API server serves.

    A kind with one version needs no request.
    """
    resource = kind.resource(group)
    if not kind.older_versions:
        return resource
    return kind.resource(group, await served_version(client, kind, resource.group))
