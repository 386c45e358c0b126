"""Finds out whether KubeVirt changes running VMIs when their VMs change (`vmRolloutStrategy`).

The default is `LiveUpdate` since KubeVirt 1.6. KubeVirt ends some changes with a live migration, which it starts only
if `workloadUpdateMethods` has `LiveMigrate`.
"""

import asyncio
from collections.abc import Collection
from typing import Final

import structlog
from msgspec.structs import asdict

from controller.kubevirt.live_updates import RolloutSettings
from controller.preflight.versions import parse_version, version_of
from controller.runtime.execute.requests import Requests
from controller.takeover.discovery import Found, Hidden, find_visible_kubevirt
from controller.takeover.virt_controller import KubeVirt
from informers.errors import ApiError
from informers.resource import UNDECODABLE

log = structlog.get_logger()

READ_AGAIN_S: Final = 60.0
READ_FIRST_S: Final = 2.0
"""The pause after a failed read, in seconds, while the strategy is not known."""

LIVE_UPDATE: Final = "LiveUpdate"
LIVE_MIGRATE: Final = "LiveMigrate"
EVICT: Final = "Evict"
FIRST_LIVE: Final = (1, 6)
FIRST_JUDGE: Final = (1, 9)


class RolloutStrategy:
    """The strategy as the cluster shows it now. If a read fails, the last known one stays.

    Before the first answer, KubeVirt makes all changes: with `Stage` too, it asks for each restart, so a live change
    that an earlier process began is not cut short by a restart.
    """

    def __init__(self, client: Requests, namespace: str = "") -> None:
        self._client = client
        self._namespace = namespace
        self.rollout = RolloutSettings(changes=True, migrates=True, judges=True)
        self._is_known = False

    async def read(self) -> None:
        """Read the strategy once. A failure is only logged."""
        try:
            installation = await find_visible_kubevirt(self._client, self._namespace)
        except (ApiError, *UNDECODABLE) as error:
            log.debug("cannot read KubeVirt's rollout strategy", why=str(error))
            return
        found = installation.kubevirts if isinstance(installation, Found) else ()
        self._is_known = True
        before, self.rollout = self.rollout, rollout_of(found)
        if self.rollout != before:
            why = installation.why if isinstance(installation, Hidden) else ""
            log.info("KubeVirt's rollout strategy", **asdict(self.rollout), why=why)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(READ_AGAIN_S if self._is_known else READ_FIRST_S)
            await self.read()


def rollout_of(found: Collection[KubeVirt]) -> RolloutSettings:
    return RolloutSettings(
        changes=bool(found) and all(map(_updates_live, found)),
        migrates=bool(found) and all(LIVE_MIGRATE in _methods_of(each) for each in found),
        evicts=any(EVICT in _methods_of(each) for each in found),
        judges=bool(found) and all((parse_version(version_of(each)) or FIRST_LIVE) >= FIRST_JUDGE for each in found),
    )


def _methods_of(kubevirt: KubeVirt) -> tuple[str, ...]:
    strategy = kubevirt.spec.workload_update_strategy if kubevirt.spec is not None else None
    return (strategy.workload_update_methods or ()) if strategy is not None else ()


def _updates_live(kubevirt: KubeVirt) -> bool:
    configuration = kubevirt.spec.configuration if kubevirt.spec is not None else None
    strategy = configuration.vm_rollout_strategy if configuration is not None else None
    if strategy:
        return strategy == LIVE_UPDATE
    version = parse_version(version_of(kubevirt))
    return version is not None and version >= FIRST_LIVE
