"""The content of a lease, and the decision of a process about its next step.

The functions of this module do no I/O and read no clock and no random numbers. A lease is an object of the kind Lease
in `coordination.k8s.io/v1`. The spec of a lease, called the record, names the holder. The holder is the leader while it
changes the lease often enough.

No decision uses the timestamps in the record, because the clocks of machines differ. Each process notes on its own
monotonic clock the moment when it *saw* a change of the lease. The duration of the lease counts from this moment. So
the clocks may show different times, but must run at nearly the same rate. Within one lease duration (15 s by default),
two clocks may drift apart by 5 s. The 5 s are the lease duration minus the renew deadline of the holder (10 s by
default).

Every change of a lease contains the resourceVersion that the process has read before its decision. If several processes
decide to take the lease, the write of only one process succeeds.
"""

import math
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, TypeAlias

import msgspec
from msgspec import Struct

from informers.meta import ObjectMeta, annotations_of, version_number
from informers.resource import Resource

QUARANTINE: Final = "vmherd.dev/quarantine"
"""The annotation of a lease with the sets and pools that keep the leader busy, as `kind/namespace/name` with commas."""

SETTINGS: Final = "vmherd.dev/settings"
"""The annotation of a lease with the settings of the leader that plans depend on, as JSON (`settings.published`)."""


class LeaseSpec(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The record in a lease. The times in a record are only information for users."""

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
        return self.record.holder_identity or ""

    @property
    def note(self) -> str:
        return annotations_of(self.metadata).get(QUARANTINE, "")


LEASES: Resource[Lease] = Resource(
    Lease, group="coordination.k8s.io", version="v1", plural="leases", kind="Lease", namespaced=True
)


class Observed(Struct, frozen=True, kw_only=True):
    lease: Lease | None
    holder: str
    """The identity of the holder, or "" if there is no holder. If the lease was deleted, this is the last holder."""

    held_until: float
    """Until this time of the observer's monotonic clock, only the holder may write the lease."""


def observe(before: Observed | None, lease: Lease | None, *, now: float, usual_duration_s: float) -> Observed:
    """Return what a process knows after it has read or written the lease at the time `now`.

    `lease` is None if the lease does not exist. If the record has no duration, `usual_duration_s` is used. Any change
    of the lease, by any client, starts the lease duration again. If the lease is deleted, the last holder counts as the
    holder until the lease duration ends, because the last holder may create the lease again.
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
    """The decision to create the lease, because no lease exists and no other process is known to be the leader."""


class Renew(Struct, frozen=True):
    lease: Lease


class Take(Struct, frozen=True):
    """The decision to take the lease, because the holder released it or did not renew it in time."""

    lease: Lease


class Wait(Struct, frozen=True):
    """The field `until` is the earliest end of the wait."""

    until: float


Decision: TypeAlias = Create | Renew | Take | Wait


def decide(observed: Observed, *, identity: str, now: float) -> Decision:
    """Return the next step of the process `identity` at the time `now` of its monotonic clock."""
    if observed.holder == identity:
        return Renew(observed.lease) if observed.lease else Create()
    if now < observed.held_until:
        return Wait(observed.held_until)
    return Take(observed.lease) if observed.lease else Create()


def claim(decision: Create | Renew | Take, *, identity: str, duration_s: float, now: datetime) -> LeaseSpec:
    """The argument `now` is the wall-clock time, which is information for users."""
    moment = micro_time(now)
    seconds = math.ceil(duration_s)  # the API accepts only whole seconds, and a longer duration is safe
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
    """Return the record of a released lease, which any process may take, as client-go writes it."""
    moment = micro_time(now)
    return LeaseSpec(holder_identity="", lease_duration_seconds=1, acquire_time=moment, renew_time=moment)


def creation_body(namespace: str, name: str, spec: LeaseSpec) -> bytes:
    metadata = {"namespace": namespace, "name": name}
    return msgspec.json.encode(
        {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": metadata, "spec": spec}
    )


def change_body(lease: Lease, spec: LeaseSpec, note: str | None = None, settings: str = "") -> bytes:
    """Return a merge patch of the spec and the annotations, for the lease as it was read. None and "" change none."""
    metadata: dict[str, object] = {"uid": lease.metadata.uid, "resourceVersion": lease.metadata.resource_version}
    changed = {QUARANTINE: note or None} if note is not None and note != lease.note else {}
    if settings and settings != annotations_of(lease.metadata).get(SETTINGS):
        changed[SETTINGS] = settings
    if changed:
        metadata["annotations"] = changed
    return msgspec.json.encode({"metadata": metadata, "spec": spec})


def micro_time(moment: datetime) -> str:
    """Return a time as a Kubernetes MicroTime: in UTC, with exactly six digits after the decimal point."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class RestoreDetector:
    """Calls `on_restore` with the proof of a restore of etcd from a backup: the version of the lease decreases.

    The leader writes the lease every two seconds, so a restored lease is older than the last that was read.
    """

    def __init__(self, name: str) -> None:
        self.on_restore: Callable[[str], object] = lambda _why: None
        self._name = name
        self._newest = 0

    def note(self, lease: Lease | None) -> None:
        """Compare the version of a lease with the last version. Call this method after each read and write."""
        version = version_number(lease.metadata.resource_version) if lease is not None else None
        if version is None:
            return
        before, self._newest = self._newest, version
        if version < before:
            self.on_restore(f"the lease {self._name} has version {version}, but had version {before} before")
