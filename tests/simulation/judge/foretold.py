"""Sentences about what the plugin foretells, and what then happens if nothing else happens."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from controller.events.event import EVENTS
from controller.kubevirt import annotations as names
from controller.kubevirt.resources import VMIS, VMS
from controller.leaderelection.lease import LEASES
from controller.pool.healing.downtime_note import NOTE_AFTER
from controller.runtime.execute.refusals import TOO_MANY
from tests.simulation.foretold import Foretold
from tests.simulation.judge.replay import annotations, begins_to_leave, is_disturbed
from tests.simulation.judge.sentence import Found, sentence
from tests.simulation.life import Life
from tests.simulation.objects import is_ready
from tests.simulation.server import Asked, Change
from tests.simulation.world import POOLS, SETS

TIMED: Final = (names.REPLACE_UNREADY_AFTER, names.PARTITION)
SOON_S: Final = 12.0
"""What is foretold for now happens in so many seconds."""

RETRY_S: Final = 330.0
"""A write that was refused, or taken back by a policy, is tried again after so many seconds at the latest."""

PASS_S: Final = 0.2
"""The writes of one pass follow each other so quickly, in seconds."""

UNLED_S: Final = 8.0
"""A leader renews its lease more often, in seconds."""

BEFORE_S: Final = 4.0
"""A change this long ago has been seen by the controller, in seconds."""

ELSEWHERE: Final = ("crash", "crash_at_step", "suspend", "terminate", "fault", "lose_node", "return_node", "bad_second")


class _Quiet:
    """Tells whether anything else happened to a set or pool."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self._changes: dict[str, list[Change]] = {}
        self._renewals = [each.at for each in life.changes if each.resource is LEASES]
        births = [act.args for act in life.story.acts if act.what == "create"]
        self._alike = [{name} for _, name, given in births if given["app"] != "shared"]
        self._alike.append({name for _, name, given in births if given["app"] == "shared"})
        """The sets and pools that may take members from each other."""
        clocks = [act.args for act in life.story.acts if act.what == "fault" and act.args[0] == "clock"]
        self.ahead_s = 1 + sum(seconds * rate for _, seconds, rate, _ in clocks if rate > 0)
        """How much earlier than on the judge's clock a controller may act, in seconds."""

    def changes(self, owner: str) -> list[Change]:
        """The changes of the objects that belong to the set or pool, by their names."""
        if owner not in self._changes:
            self._changes[owner] = [
                each
                for each in self._life.changes
                if (each.key.name.startswith(owner) or _is_owned(each, owner)) and each.resource not in (EVENTS, LEASES)
            ]
        return self._changes[owner]

    def _is_led(self, start: float, end: float) -> bool:
        """True if a leader worked all the time. A process may crash long after the act that asks for it."""
        renewals = [start, *(at for at in self._renewals if start < at < end), end]
        return all(later - each < UNLED_S for each, later in pairwise(renewals))

    def between(self, owner: str, start: float, end: float, *, users_only: bool = False) -> bool:
        """True if only our controller acted. With `users_only`, KubeVirt may act."""
        if is_disturbed(self._life, end) or self._life.faults.overlap(start, end) or not self._is_led(start, end):
            return False
        for act in self._life.story.acts:
            apart = act.what in ELSEWHERE or "shares" in str(act.args[:1])
            concerns = any({owner, *act.args[1:2]} <= alike for alike in self._alike)
            if (start - 60 < act.at < end and apart) or (start < act.at < end and concerns):
                return False
        changes = (each for each in self.changes(owner) if start < each.at < end and not each.is_ours)
        return not any(each.actor == "user" or not users_only for each in changes)


@sentence
def the_plan_is_what_happens_next(life: Life) -> Iterator[Found | None]:
    """What `plan` prints is what the controller writes next, if nothing else happens."""
    quiet = _Quiet(life)
    for moment in life.moments:
        told_by = ", ".join(each.removeprefix(names.PREFIX) for each in moment.features if each in TIMED)
        timed = f", with {told_by}" if told_by else ""
        for told in (each for each in moment.foretold if each.by == "plan"):
            if quiet.between(told.owner, told.at - BEFORE_S, told.at):
                yield from (found and (*found[:2], found[2] + timed) for found in _after_plan(life, quiet, told))


def _after_plan(life: Life, quiet: _Quiet, told: Foretold) -> Iterator[Found | None]:
    near = [each for each in _writes(life, told) if abs(each.at - told.at) < PASS_S]
    if len({each.at > told.at for each in near}) > 1:
        return  # it was told in the middle of a pass, whose plan is older
    asked = next((each for each in _writes(life, told) if each.at > told.at), None)
    if asked is not None and not told.names and _is_from_memory(quiet.changes(told.owner), told.at, asked):
        return
    if asked is not None and asked.at < told.due - quiet.ahead_s and quiet.between(told.owner, told.at, asked.at):
        yield None
        name = f"{asked.resource.plural}/{asked.key.name}"
        is_new = asked.verb == "create" and any(each.startswith(asked.resource.plural) for each in told.names)
        if name not in told.names and not is_new:
            text = f"{asked.verb} {name} at {asked.at:.1f} s, and the plan names {sorted(told.names) or 'nothing'}"
            yield told.at, told.owner, text
    elif told.names - _waiting_for_disks(life, told) and quiet.between(told.owner, told.at, told.at + SOON_S):
        yield None
        own = [each for each in _writes(life, told) if told.at - RETRY_S < each.at < told.at + SOON_S]
        is_late = not any(each.at > told.at - BEFORE_S or each.code >= 400 for each in own)
        is_late = is_late and not life.faults.overlap(told.at - RETRY_S, told.at, "strip", "quota", "refuse", "webhook")
        is_late = is_late and not _says_that_it_waits(quiet.changes(told.owner), told.at)
        if is_late and told.at + SOON_S < life.ended_at:
            yield told.at, told.owner, f"the plan names {sorted(told.names)}, and nothing is written"


def _is_owned(change: Change, owner: str) -> bool:
    """True if the object is a member that the set or pool has adopted: its name may be any."""
    return any(each["name"] == owner for each in change.last["metadata"].get("ownerReferences") or ())


def _says_that_it_waits(changes: list[Change], at: float) -> bool:
    """True if the status says that creates wait, because new members go again and again (R4b)."""
    states = [each.last for each in changes if each.at < at and each.resource in (POOLS, SETS)]
    return bool(states) and TOO_MANY in str(states[-1].get("status"))


def _is_from_memory(changes: list[Change], told_at: float, asked: Asked) -> bool:
    """True if another process cannot know that the write is due: `plan` prints no notes, and a pool notes since when a
    VM is not ready only after a while.
    """
    if any(each.is_ours and told_at < each.at <= asked.at and _is_noted(each) for each in changes):
        return True
    begins = [
        each.at
        for each in changes
        if each.at < asked.at and (each.resource, each.key) == (asked.resource, asked.key) and _changes_ready(each)
    ]
    return asked.verb == "delete" and bool(begins) and asked.at - begins[-1] < NOTE_AFTER.total_seconds()


def _changes_ready(change: Change) -> bool:
    return change.before is None or is_ready(change.before) != is_ready(change.last)


def _is_noted(change: Change) -> bool:
    """True if the controller has written since when VMs are not ready, or that they return."""
    if change.resource not in (POOLS, SETS) or change.before is None or change.after is None:
        return False
    before, after = annotations(change.before), annotations(change.after)
    return any(before.get(each) != after.get(each) for each in (names.UNREADY, names.ROLLED_BACK))


def _waiting_for_disks(life: Life, told: Foretold) -> set[str]:
    """The VMs that wait because a user or another pool has a disk with the name of theirs, because a user has deleted a
    claim that is in use, or because KubeVirt has not plugged a volume yet. `plan` does not ask the server for disks,
    and the pool tells of them like of a refused write.
    """
    acts = [each for each in life.story.acts if each.at < told.at]
    made = [each.args for each in acts if each.what == "static_claim"]
    own = [each for each in acts if each.args[1:2] == (told.owner,)]
    waits = ("delete_claim", *(["live_change"] if life.story.options.plugs else []))
    if any(each.what in waits or (each.what == "create" and each.args[2]["shares_disks"]) for each in own):
        return told.names | {f"{VMS.plural}/{each}" for each in told.names}
    return {f"{VMS.plural}/{name}-{ordinal}" for _, name, ordinal in made}


def _writes(life: Life, told: Foretold) -> Iterator[Asked]:
    skipped = (EVENTS, LEASES)
    for each in life.asked:
        if each.dry_run or each.resource in skipped or each.subresource == "status":
            continue
        # `plan` prints no notes.
        is_of_owner = each.verb == "patch" and each.resource in (POOLS, SETS)
        is_note = is_of_owner and f"{each.resource.plural}/{each.key.name}" not in told.names
        # A member that was adopted has the name of another set.
        is_told = each.key.name in told.names or f"{each.resource.plural}/{each.key.name}" in told.names
        if (is_told or each.key.name.startswith(told.owner)) and not is_note:
            yield each


@sentence
def why_tells_what_comes_next(life: Life) -> Iterator[Found | None]:
    """What `why` foretells of a member happens at the time that it says, if nothing else happens."""
    quiet = _Quiet(life)
    for told in (each for moment in life.moments for each in moment.foretold if each.by == "why"):
        end = told.due + SOON_S
        if end > life.ended_at or not quiet.between(told.owner, told.at - BEFORE_S, end):
            continue
        yield None
        [name] = told.names
        if f"{VMS.plural}/{name}" in _waiting_for_disks(life, told):
            continue
        if not any(
            each.key.name == name and told.due - 1 - quiet.ahead_s < each.at < end for each in _writes(life, told)
        ):
            near = [
                each for each in quiet.changes(told.owner) if told.due - 2 < each.at < end and each.resource is POOLS
            ]
            healed = [annotations(state).get(names.HEALED) for each in near for state in (each.before, each.after)]
            noted = ", although its healing was noted" if len({*healed}) > 1 else ""
            yield told.at, told.owner, f"{name} was to be written at {told.due:.0f} s, and was not{noted}"


@sentence
def a_scale_is_what_was_foretold(life: Life) -> Iterator[Found | None]:
    """The VMs that `scale --dry-run` names leave, and no others, if nothing else happens."""
    quiet = _Quiet(life)
    for told in life.world.foretold:
        end = told.at + SOON_S
        window = [each for each in quiet.changes(told.owner) if told.at - BEFORE_S < each.at < end]
        calm = all(_keeps_its_state(each) or each.key.name in told.names for each in window if not each.is_ours)
        if not calm or not quiet.between(told.owner, told.at + 0.001, end, users_only=True):
            continue
        ours = [each for each in window if each.is_ours and each.at > told.at and each.resource in (VMS, VMIS)]
        left = {each.key.name for each in ours if begins_to_leave(each) or _begins_to_drain(each)}
        made = sum(each.before is None for each in ours)
        yield None
        if left != told.names or made != told.new:
            names_ = f"{sorted(told.names)} would leave and {told.new} would come"
            yield told.at, told.owner, f"{names_}, and {sorted(left)} left and {made} came"


def _keeps_its_state(change: Change) -> bool:
    """True if the change makes no member ready, not ready, finished or gone."""
    if change.resource not in (VMS, VMIS):
        return True
    phases = [(each or {}).get("status", {}).get("phase") for each in (change.before, change.after)]
    if change.before is None:
        return True  # it is new
    return change.after is not None and is_ready(change.before) == is_ready(change.after) and len({*phases}) == 1


def _begins_to_drain(change: Change) -> bool:
    mark = annotations(change.after).get(names.DRAINING, "")
    return mark.startswith("scale-in") and names.DRAINING not in annotations(change.before)
