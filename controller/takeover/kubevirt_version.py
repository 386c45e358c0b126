"""Checks whether the installed KubeVirt is new enough.

The version comes from the status of the KubeVirt object. The check is skipped if the object is missing, or if the
controller may not list it. The check is also skipped if the version is not a number, as in a development build.
"""

from __future__ import annotations

import re
from typing import Final, TypeAlias

import structlog
from msgspec import Struct

from controller.config.modes import Mode
from controller.config.settings import Config
from controller.takeover.discovery import Found, Installation
from controller.takeover.virt_controller import KubeVirt

log = structlog.get_logger()

Version: TypeAlias = tuple[int, int]

OLDEST: Final[Version] = (1, 3)
"""The oldest KubeVirt that vmherd supports. It is the first KubeVirt that was tested with Kubernetes 1.30."""

FIRST_WITH_BOTH_LOOPS: Final[Version] = (0, 49)
"""The first version of KubeVirt whose virt-controller has a loop for pools and a flag that stops this loop."""

_VERSION: Final = re.compile(r"v?(\d{1,4})\.(\d{1,4})\.")


class TooOld(Struct, frozen=True):
    """This KubeVirt is too old for a takeover. The field `found` is its version."""

    found: str

    def __str__(self) -> str:
        return (
            f"KubeVirt {self.found} cannot be taken over, because its virt-controller has no flag that stops the loop "
            f"for pools: upgrade KubeVirt to {_text(OLDEST)} or newer, or use --mode alongside"
        )


def check_version(config: Config, installation: Installation) -> tuple[TooOld, ...]:
    """Return a problem if the mode is `takeover` and the installed KubeVirt is too old for a takeover.

    In other cases, only log a warning if vmherd does not support the installed KubeVirt.
    """
    problems = []
    for kubevirt in installation.kubevirts if isinstance(installation, Found) else ():
        text = version_of(kubevirt)
        version = parse_version(text)
        if version is None or version >= OLDEST:
            continue
        if config.mode == Mode.TAKEOVER and version < FIRST_WITH_BOTH_LOOPS:
            problems.append(TooOld(text))
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
