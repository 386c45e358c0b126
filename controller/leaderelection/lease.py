"""The content of a lease, and the decision of a process about its next step. Nothing here does I/O or reads a clock.

The spec of a lease, called the record, names the holder, who leads while it changes the lease often enough.

No decision uses the timestamps in the record, because the clocks of machines differ. The duration of a lease counts
from the moment, on its own monotonic clock, when a process *saw* the last change. Within one duration, two clocks may
drift apart by the duration minus the renew deadline of the holder (by default 5 s).

Every change of a lease contains the resourceVersion that was read before the decision, so only one process succeeds.
"""

import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Final

import msgspec
from msgspec import Struct

from informers.meta import ObjectMeta, annotations_of, version_number
from informers.resource import Resource

QUARANTINE: Final = "vmherd.dev/quarantine"
"""The annotation of a lease with the sets and pools that keep the leader busy, as `kind/namespace/name` with commas."""

SECOND_WRITER: Final = "vmherd.dev/second-writer"
"""The annotation of a lease with the other controller that works on the same objects, as the leader has found it."""

SETTINGS: Final = "vmherd.dev/settings"
"""The annotation of a lease with the settings of the leader that plans depend on, as JSON (`settings.published`)."""


NO_NOTES: Final[Mapping[str, str]] = MappingProxyType({})


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


LEASES: Resource[Lease] = Resource(Lease, group="coordination.k8s.io", version="v1", plural="leases", kind="Lease")


class Observed(Struct, frozen=True, kw_only=True):
    lease: Lease | None
    holder: str
    """The identity of the holder, or "" if there is no holder. If the lease was deleted, this is the last holder."""

    held_until: float
    """Until this time of the observer's monotonic clock, only the holder may write the lease."""


def observe(before: Observed | None, lease: Lease | None, *, now: float, usual_duration_s: float) -> Observed:
    """Return what a process knows after a read or write of the lease, or None if it does not exist, at `now`.

    Any change by any client starts its duration again, by default `usual_duration_s`. The last holder of a deleted
    lease counts until the duration ends, because it may create the lease again.
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


def may_write(observed: Observed, *, identity: str, now: float) -> bool:
    """Return True if the process `identity` may write the lease at the time `now` of its monotonic clock."""
    return observed.holder == identity or now >= observed.held_until


def claim(lease: Lease | None, *, identity: str, duration_s: float, now: datetime) -> LeaseSpec:
    """Return the record that creates the lease, or renews or takes this one. `now` is the wall clock, for users."""
    moment, before = micro_time(now), lease.record if lease is not None else LeaseSpec()
    is_renewal, transitions = before.holder_identity == identity, before.lease_transitions or 0
    return LeaseSpec(
        holder_identity=identity,
        lease_duration_seconds=math.ceil(duration_s),  # the API accepts only whole seconds, and more is safe
        acquire_time=(before.acquire_time if is_renewal else None) or moment,
        renew_time=moment,
        lease_transitions=transitions if is_renewal or lease is None else transitions + 1,
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


def change_body(lease: Lease, spec: LeaseSpec, notes: Mapping[str, str] = NO_NOTES) -> bytes:
    """Return a merge patch of the spec and the annotations `notes` for the lease as it was read. "" removes a note."""
    metadata: dict[str, object] = {"uid": lease.metadata.uid, "resourceVersion": lease.metadata.resource_version}
    known = annotations_of(lease.metadata)
    changed = {name: text or None for name, text in notes.items() if text != known.get(name, "")}
    if changed:
        metadata["annotations"] = changed
    return msgspec.json.encode({"metadata": metadata, "spec": spec})


def micro_time(moment: datetime) -> str:
    """Return a time as a Kubernetes MicroTime: in UTC, with exactly six digits after the decimal point."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class RestoreDetector:
    """Calls `on_restore` when the version of the lease, which always changes soon, decreases: etcd was restored."""

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
