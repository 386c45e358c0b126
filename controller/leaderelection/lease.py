"""What a lease says, what a process may conclude from it, and what to do next. Pure: no I/O, no clock, no chance.

A lease is a `coordination.k8s.io/v1` Lease. Whoever is named in it leads, for as long as the record keeps changing.

No timestamp in a record is believed, as clocks of machines differ. A process notes by its own monotonic clock when it
*saw* the record change, and counts the record's duration from there. What is left to trust is that clocks run at the
same rate, to within the difference between the lease's duration and the holder's renew deadline (5 of 15 s).

Every write carries the resourceVersion that it was decided on, so of several that decide alike only one succeeds.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import TypeAlias

import msgspec
from msgspec import Struct

from informers.meta import ObjectMeta
from informers.resource import Resource


class LeaseSpec(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A record. Its times are for people who look at it."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(Struct, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: LeaseSpec | None = None

    @property
    def record(self) -> LeaseSpec:
        return self.spec or LeaseSpec()

    @property
    def holder(self) -> str:
        """Who holds it; "" when it was released."""
        return self.record.holder_identity or ""


LEASES: Resource[Lease] = Resource(
    Lease, group="coordination.k8s.io", version="v1", plural="leases", kind="Lease", namespaced=True
)


class Observed(Struct, frozen=True, kw_only=True):
    """What a process knows of a lease, from its own reads and writes."""

    lease: Lease | None
    """As last seen; None when there is none."""

    holder: str
    """Who holds it, or held it last before it vanished; "" for nobody."""

    held_until: float
    """On the observer's monotonic clock: before this, nobody but the holder may write."""


def observe(before: Observed | None, lease: Lease | None, *, now: float, usual_duration_s: float) -> Observed:
    """Take in what was just read or written at `now`. `usual_duration_s` is for a record that names no duration.

    Any change of the object is a sign of the holder's life, whatever it changed. A lease that vanished still binds:
    somebody deleted the record, not the leader, who will put it back.
    """
    if lease is None:
        return Observed(
            lease=None, holder=before.holder if before else "", held_until=before.held_until if before else now
        )
    if before is not None and before.lease is not None and _version(before.lease) == _version(lease):
        return before
    duration_s = lease.record.lease_duration_seconds or usual_duration_s
    return Observed(lease=lease, holder=lease.holder, held_until=now + duration_s if lease.holder else now)


def _version(lease: Lease) -> tuple[str, str]:
    return lease.metadata.uid, lease.metadata.resource_version


class Create(Struct, frozen=True):
    """There is no lease, and nobody who may still count on one."""


class Renew(Struct, frozen=True):
    """It is ours: say that we live."""

    lease: Lease


class Take(Struct, frozen=True):
    """It was released, or its holder has been silent for too long."""

    lease: Lease


class Wait(Struct, frozen=True):
    """Somebody else has it, at least until then if nothing changes."""

    until: float


Decision: TypeAlias = Create | Renew | Take | Wait


def decide(observed: Observed, *, identity: str, now: float) -> Decision:
    """Say what a candidate does next with what it knows."""
    if observed.holder == identity:
        return Renew(observed.lease) if observed.lease else Create()
    if now < observed.held_until:
        return Wait(observed.held_until)
    return Take(observed.lease) if observed.lease else Create()


def claim(decision: Create | Renew | Take, *, identity: str, duration_s: float, now: datetime) -> LeaseSpec:
    """The record to write for a decision. `now` is the time of day, for people."""
    moment = micro_time(now)
    seconds = math.ceil(duration_s)  # the API has whole seconds; longer is on the safe side
    match decision:
        case Create():
            acquired, transitions = moment, 0
        case Renew(lease):
            acquired, transitions = lease.record.acquire_time or moment, lease.record.lease_transitions or 0
        case Take(lease):
            acquired, transitions = moment, (lease.record.lease_transitions or 0) + 1
    return LeaseSpec(
        holder_identity=identity,
        lease_duration_seconds=seconds,
        acquire_time=acquired,
        renew_time=moment,
        lease_transitions=transitions,
    )


def release(*, now: datetime) -> LeaseSpec:
    """The record of a lease that its holder gives up, as client-go writes it: anybody may take it at once."""
    moment = micro_time(now)
    return LeaseSpec(holder_identity="", lease_duration_seconds=1, acquire_time=moment, renew_time=moment)


def creation_body(namespace: str, name: str, spec: LeaseSpec) -> bytes:
    """A new Lease, for POST."""
    metadata = {"namespace": namespace, "name": name}
    return msgspec.json.encode(
        {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": metadata, "spec": spec}
    )


def change_body(lease: Lease, spec: LeaseSpec) -> bytes:
    """A merge patch that applies to this version of the lease and to no other; the rest of the object stays."""
    metadata = {"uid": lease.metadata.uid, "resourceVersion": lease.metadata.resource_version}
    return msgspec.json.encode({"metadata": metadata, "spec": spec})


def micro_time(moment: datetime) -> str:
    """A time as MicroTime wants it: UTC, with exactly six digits after the point."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
