"""This module defines the conditions of VMs, VMIs and DataVolumes.

It changes lists of conditions in the same way as KubeVirt.
"""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct


class Condition(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One condition. A time that is not known is left out. KubeVirt stores `null` instead."""

    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None
    last_probe_time: datetime | None = None
    last_transition_time: datetime | None = None


Conditions = tuple[Condition, ...]


def find(conditions: Conditions | None, type_: str) -> Condition | None:
    return next((condition for condition in conditions or () if condition.type == type_), None)


def updated(conditions: Conditions, new: Condition) -> Conditions:
    """Return the list with the new condition.

    If the list has no condition of this type, the new condition is added. If the status or the reason has changed, the
    new condition replaces the old condition. Otherwise the list does not change, even if the message has changed.
    KubeVirt's `UpdateCondition` does the same.
    """
    present = find(conditions, new.type)
    if present is None:
        return (*conditions, new)
    if present.status == new.status and (present.reason or "") == (new.reason or ""):
        return conditions
    return tuple(new if condition.type == new.type else condition for condition in conditions)


def without(conditions: Conditions, type_: str) -> Conditions:
    return tuple(condition for condition in conditions if condition.type != type_)
