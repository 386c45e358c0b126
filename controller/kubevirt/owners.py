"""The owner whose status a pass reports."""

from __future__ import annotations

from typing import TypeVar

from msgspec.structs import replace

from controller.kubevirt.pool_types import Pool
from controller.kubevirt.replicaset_types import ReplicaSet

Owner = TypeVar("Owner", ReplicaSet, Pool)


def as_planned(before: Owner, after: Owner) -> Owner | None:
    """The newest owner under the spec that was planned from: its status tells what came of that one.

    A spec that changed while the plan was carried out has not been observed yet, and must not be reported as if (R11).
    None when the owner was replaced by another of the same name: the pass says nothing about that one.
    """
    if before.metadata.uid != after.metadata.uid:
        return None
    if before.metadata.generation == after.metadata.generation:
        return after
    metadata = replace(after.metadata, generation=before.metadata.generation)
    return replace(after, metadata=metadata, spec=before.spec)
