"""Judges the delete of a VMI again, from the VMI that the server has now (P20)."""

from __future__ import annotations

from typing import Final

import msgspec

from controller.kubevirt.delicate import UNREADABLE, reason_to_keep_vmi
from controller.runtime.actions import Delete, Restart
from controller.runtime.execute.deletes import Found, Judge


def obstacle(action: Delete | Restart, found: Found) -> str:
    """Return the reason why the VMI must not be deleted now, or ""."""
    try:
        return reason_to_keep_vmi(action.resource.decode(found[action.resource]))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return UNREADABLE


JUDGE: Final = Judge((), obstacle)
