"""Detects a restore of etcd from a backup: the version of the lease decreases.

Each write of a lease increases its version, and the leader writes the lease every two seconds. So the restored lease is
older than the last lease that this process has read.
"""

from __future__ import annotations

from collections.abc import Callable

from controller.leaderelection.lease import Lease
from informers.meta import version_number


class RestoreDetector:
    """Calls `on_restore` with the proof if the version of the lease `name` decreases."""

    def __init__(self, name: str) -> None:
        self.on_restore: Callable[[str], None] = lambda _why: None
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
