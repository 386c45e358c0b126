"""The annotation `vmherd.dev/replace-unready-after-seconds` of a replica set or pool (R4a, P15)."""

from __future__ import annotations

from datetime import timedelta

from msgspec import Struct

from controller.apimachinery.field_error import quoted
from controller.kubevirt.annotations import REPLACE_UNREADY_AFTER, parse_integer
from controller.kubevirt.progress import invalid_annotation
from controller.runtime.plan import Notice
from informers.meta import ObjectMeta, annotations_of


class ReplaceUnreadyAfter(Struct, frozen=True):
    """The time limit for a running VM to become ready, or None if there is no limit.

    After this time, the VM is replaced.

    `notices` contains a warning if the annotation has an invalid value.
    """

    after: timedelta | None = None
    notices: tuple[Notice, ...] = ()


def replace_unready_after(owner: ObjectMeta) -> ReplaceUnreadyAfter:
    """Return the setting from the annotation of a set or pool. An invalid value counts as no annotation."""
    text = annotations_of(owner).get(REPLACE_UNREADY_AFTER)
    if text is None:
        return ReplaceUnreadyAfter()
    seconds = parse_integer(text)
    if seconds is not None and seconds > 0:
        return ReplaceUnreadyAfter(timedelta(seconds=seconds))
    message = (
        f"annotation {REPLACE_UNREADY_AFTER} is {quoted(text)}: it must be a number of seconds from 1, "
        "so no VM is replaced because it is not ready"
    )
    return ReplaceUnreadyAfter(notices=(invalid_annotation(REPLACE_UNREADY_AFTER, owner, message),))
