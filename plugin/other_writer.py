"""Finds the controller that works on objects: the leader, or KubeVirt's own controller."""

import asyncio
from collections.abc import Iterable
from typing import Final

from msgspec import structs

from controller.config.modes import Mode
from controller.config.settings import Config
from controller.kinds import KINDS
from controller.takeover.second_writer import SecondWriter, find_second_writer
from plugin import clock
from plugin.connection import Session
from plugin.printing import note
from plugin.reading import LEASE_NAME, Reader, Target
from plugin.views.reasons import Leader, leader_of

KUBEVIRT_REPLACES_NONE: Final = "KubeVirt's own controller runs this set, and replaces no VMI of an old template"

UNKNOWN: Final = "kubevirts"
"""The key of the line that `other_writer` adds to `missing`."""


async def other_writer(session: Session, target: Target, missing: dict[str, str], *, certain: bool = False) -> str:
    """Return the evidence that KubeVirt's own controller works on this object, or "".

    With `certain`, a rollout of virt-controller is no evidence: its loops may stop at the end of the rollout.

    If the user may not read what is needed for an answer, add a line to `missing`.
    """
    # Only the kind and the group of this object count.
    groups = {kind.group_setting: kind.own_group for kind in KINDS}
    groups[target.kind.group_setting] = target.resource.group
    config = structs.replace(Config(mode=Mode.STANDALONE.value), **groups)
    deadline = asyncio.get_running_loop().time()
    for found in await find_second_writer(session, config, now=clock.now, deadline=deadline, advises=False):
        if isinstance(found, SecondWriter):
            if found.is_certain or not certain:
                return found.evidence
            continue
        missing[UNKNOWN] = f"whether KubeVirt's own controller works on {target} ({found.why})"
    return ""


async def leader_in(reader: Reader, name: str = LEASE_NAME) -> Leader | None:
    """Return the controller's lease, or None if the user may not read leases."""
    leases = await reader.leases(name)
    return None if leases is None else leader_of(leases, clock.now())


async def warning_about_status(session: Session, reader: Reader, targets: Iterable[Target]) -> str:
    """Return the warning that the statuses are old, because no controller renews its lease, or "". Raise ApiError."""
    leader = await leader_in(reader)
    if leader is None or not leader.since:
        return ""
    for each in _firsts(targets):
        if await other_writer(session, each, {}):
            return ""
    return leader.warning


async def note_about_other_writer(session: Session, targets: Iterable[Target]) -> None:
    """Say that the output above is only vmherd's plan, once for each kind that KubeVirt runs itself. Raise ApiError."""
    for target in _firsts(targets):
        evidence = await other_writer(session, target, {})
        if evidence:
            noun = target.kind.noun
            note(f"Note: vmherd would do this, but KubeVirt's own controller runs the {noun}s now ({evidence})")


def _firsts(targets: Iterable[Target]) -> Iterable[Target]:
    return {(each.kind.name, each.resource.group): each for each in reversed([*targets])}.values()
