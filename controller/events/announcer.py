"""Sends Events about the controller itself. The object of these Events is the controller's lease, as in client-go."""

from __future__ import annotations

from typing import NamedTuple

from controller.config.settings import Config
from controller.events.correlator import ObjectRef
from controller.events.recorder import EventRecorder
from controller.runtime.actions import Notice


class LeaseAnnouncer(NamedTuple):
    """Sends Events whose object is the lease of this controller."""

    recorder: EventRecorder
    config: Config

    async def announce(self, notice: Notice, *, within_s: float) -> None:
        """Send an Event, and wait at most `within_s` seconds until it is sent."""
        lease = ObjectRef(
            api_version="coordination.k8s.io/v1",
            kind="Lease",
            namespace=self.config.leader_election_namespace,
            name=self.config.leader_election_id,
            uid="",
        )
        self.recorder.publish(lease, (notice,))
        await self.recorder.sent(within_s)
