"""The lease: its content, and the decision of a process about its next step. Pure: no I/O, no clock, no random numbers.

A lease is a `coordination.k8s.io/v1` Lease. Its spec, the record, names the holder. The holder leads as long as the
lease keeps changing.

No decision uses the timestamps in the record, because the clocks of machines differ. Each process notes on its own
monotonic clock when it *saw* a change of the lease, and counts the duration of the lease from that moment. This only
requires that all clocks run at nearly the same rate. The permitted error is the difference between the lease duration
and the renew deadline of the holder (by default 5 s in 15 s).

Every write carries the resourceVersion of the lease that the decision was made on. If several processes decide to take
the lease, the write of only one process succeeds.
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
    """The record in a lease. Its times are only for people who read it."""

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
        """The identity of the holder; "" if the lease was released."""
        return self.record.holder_identity or ""


LEASES: Resource[Lease] = Resource(
    Lease, group="coordination.k8s.io", version="v1", plural="leases", kind="Lease", namespaced=True
)


class Observed(Struct, frozen=True, kw_only=True):
    """The knowledge of one process about a lease, from its own reads and writes."""

    lease: Lease | None
    """The lease as last seen; None if it does not exist."""

    holder: str
    """The identity of the holder. For a deleted lease, the last holder. "" if no process holds the lease."""

    held_until: float
    """The time until which only the holder may write the lease, on the monotonic clock of the observer."""


def observe(before: Observed | None, lease: Lease | None, *, now: float, usual_duration_s: float) -> Observed:
    """Return the knowledge after a lease was read or written at the time `now`. `lease` is None if it does not exist.

    `usual_duration_s` is used if the record has no duration. Every change of the lease object counts as a sign that the
    holder is alive, even if another client made the change. A deleted lease still counts as held until it would have
    expired: the leader may still be running, and it will create the lease again.
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
    """Create the lease: it does not exist, and no other process may still rely on it."""


class Renew(Struct, frozen=True):
    """Renew the lease, which is ours."""

    lease: Lease


class Take(Struct, frozen=True):
    """Take the lease over: it was released, or its holder did not renew it in time."""

    lease: Lease


class Wait(Struct, frozen=True):
    """Wait: another process holds the lease, at least until `until`."""

    until: float


Decision: TypeAlias = Create | Renew | Take | Wait


def decide(observed: Observed, *, identity: str, now: float) -> Decision:
    """Return the next step of the candidate `identity`."""
    if observed.holder == identity:
        return Renew(observed.lease) if observed.lease else Create()
    if now < observed.held_until:
        return Wait(observed.held_until)
    return Take(observed.lease) if observed.lease else Create()


def claim(decision: Create | Renew | Take, *, identity: str, duration_s: float, now: datetime) -> LeaseSpec:
    """Return the record to write for a decision. `now` is the wall-clock time, for people who read the record."""
    moment = micro_time(now)
    seconds = math.ceil(duration_s)  # the API has whole seconds; a longer duration is safe
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
    """Return the record that releases a lease, as client-go writes it. Any candidate may then take the lease."""
    moment = micro_time(now)
    return LeaseSpec(holder_identity="", lease_duration_seconds=1, acquire_time=moment, renew_time=moment)


def creation_body(namespace: str, name: str, spec: LeaseSpec) -> bytes:
    """Return the body of the POST that creates the lease."""
    metadata = {"namespace": namespace, "name": name}
    return msgspec.json.encode(
        {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": metadata, "spec": spec}
    )


def change_body(lease: Lease, spec: LeaseSpec) -> bytes:
    """Return a merge patch that succeeds only for this version of the lease. Other fields of the object stay."""
    metadata = {"uid": lease.metadata.uid, "resourceVersion": lease.metadata.resource_version}
    return msgspec.json.encode({"metadata": metadata, "spec": spec})


def micro_time(moment: datetime) -> str:
    """Format a time as a Kubernetes MicroTime: UTC, with exactly six digits after the decimal point."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
