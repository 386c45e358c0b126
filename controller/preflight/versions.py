"""Chooses the first served version of each kind, or else `version`, and checks the version of KubeVirt.

KubeVirt up to 1.6 serves pools only in `v1alpha1`, and a later KubeVirt may serve only `v1`.
"""

import re
from typing import Any, Final, TypeAlias

import structlog
from msgspec import structs

from controller.config.modes import Mode
from controller.config.settings import Config
from controller.kinds import KINDS, Kind
from controller.runtime.execute.requests import Requests
from controller.takeover.discovery import Found, Installation, is_served
from controller.takeover.virt_controller import KubeVirt
from informers.resource import Resource


async def with_served_versions(client: Requests, config: Config) -> Config:
    """Return the configuration with the served versions. Raise ApiError or msgspec.DecodeError."""
    versions = {}
    for kind in KINDS:
        if kind.other_versions:
            versions[kind.name] = await served_version(client, kind, config.group_of(kind)) or kind.version
    return structs.replace(config, versions=versions)


async def served_version(client: Requests, kind: Kind[Any], group: str) -> str:
    """Return the first version of the kind that the API server serves, or "" if no version is served."""
    for version in (kind.version, *kind.other_versions):
        if await is_served(client, f"/apis/{group}/{version}", kind.plural):
            return version
    return ""


async def served_resource(client: Requests, kind: Kind[Any], group: str = "") -> Resource[Any]:
    """A kind with one version needs no request."""
    resource = kind.resource(group)
    if not kind.other_versions:
        return resource
    return kind.resource(group, await served_version(client, kind, resource.group))


log = structlog.get_logger()

Version: TypeAlias = tuple[int, int]

OLDEST: Final[Version] = (1, 3)
"""The oldest KubeVirt that vmherd supports. It is the first KubeVirt that was tested with Kubernetes 1.30."""

FIRST_WITH_BOTH_LOOPS: Final[Version] = (0, 49)
"""The first version of KubeVirt whose virt-controller has a loop for pools and a flag that stops this loop."""

_VERSION: Final = re.compile(r"v?(\d{1,4})\.(\d{1,4})\.")


def check_version(config: Config, installation: Installation) -> tuple[str, ...]:
    """Return a problem if a known KubeVirt is too old for `takeover`. Only warn in the other modes."""
    problems = []
    for kubevirt in installation.kubevirts if isinstance(installation, Found) else ():
        text = version_of(kubevirt)
        version = parse_version(text)
        if version is None or version >= OLDEST:
            continue
        if config.mode == Mode.TAKEOVER and version < FIRST_WITH_BOTH_LOOPS:
            problems.append(
                f"KubeVirt {text} cannot be taken over, because its virt-controller has no flag that stops the loop "
                f"for pools: upgrade KubeVirt to {_text(OLDEST)} or newer, or use --mode alongside"
            )
        else:
            log.warning("this version of KubeVirt is not supported", found=text, oldest=_text(OLDEST))
    return tuple(problems)


def version_of(kubevirt: KubeVirt) -> str:
    return (kubevirt.status.observed_kube_virt_version or "") if kubevirt.status is not None else ""


def parse_version(text: str) -> Version | None:
    """Return the first two numbers of a version such as `v1.6.2`, or None if the text is not a released version."""
    match = _VERSION.match(text)
    version = (int(match[1]), int(match[2])) if match else (0, 0)
    return version if version > (0, 0) else None


def _text(version: Version) -> str:
    return ".".join(map(str, version))
