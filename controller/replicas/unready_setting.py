"""The annotation `vmherd.dev/replace-unready-after-seconds` of a replica set or pool (R4a, P15)."""

from __future__ import annotations

from datetime import timedelta

from controller.kubevirt.annotations import REPLACE_UNREADY_AFTER
from controller.replicas.wrong_annotations import setting
from informers.meta import ObjectMeta


def replace_unready_after(owner: ObjectMeta) -> timedelta | None:
    """Return the time limit for a running VM to become ready, or None if there is no limit.

    After this time, the VM is replaced. An invalid value counts as no annotation.
    """
    seconds = setting(owner, REPLACE_UNREADY_AFTER)
    return timedelta(seconds=int(seconds)) if seconds is not None else None
