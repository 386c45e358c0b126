"""What a plan means for the VMs beside the wanted ones: standbys (P32) and claimed VMs (P33)."""

from controller.kubevirt.annotations import MAX_CLAIMED
from controller.kubevirt.standby import WOKEN, mark_in
from controller.kubevirt.vms import is_deleting
from controller.pool.members.situation import Situation
from controller.pool.standby import is_fresh, to_wake
from controller.runtime.actions import Patch, Plan
from informers.meta import annotations_of


def woken_by(situation: Situation) -> tuple[str, ...]:
    """Return the names of the standbys that take the place of missing VMs, in their order."""
    missing = situation.target.wanted - len(situation.members)
    return tuple(each.metadata.name for each in to_wake(situation, missing))


def laid_to_rest(situation: Situation, plan: Plan) -> tuple[str, ...]:
    """Return the names of the VMs that a scale-in makes standbys in the place of deletes."""
    known = {each.metadata.name for each in situation.standby}
    marks = {each.key.name: mark_in(each.body) for each in plan.actions if isinstance(each, Patch)}
    return tuple(name for name, mark in marks.items() if mark and not mark.startswith(WOKEN) and name not in known)


def standby_text(situation: Situation, gone: frozenset[str], resting: int) -> str:
    """Return how many standbys the pool wants, and what happens to them. `gone` are the names of those that are woken
    or deleted, and `resting` is the number of VMs that become standbys.
    """
    wanted, asked = situation.target.standbys, situation.intent.standbys
    if not asked:
        return ""
    staying = situation.standby.where(lambda each: not is_deleting(each.vm) and each.metadata.name not in gone)
    outdated = len(staying.where(lambda each: not is_fresh(situation, each)))
    missing = max(wanted - len(staying) - resting, 0)
    rest, mode = "rests" if wanted == 1 else "rest", "paused" if situation.intent.pauses else "stopped"
    texts = [
        f"{_vms(wanted)} beside the {situation.target.replicas} wanted {rest} {mode}",
        f"{missing} would be created, when no wanted VM is missing" if missing else "",
        f"{outdated} {'is' if outdated == 1 else 'are'} outdated, and would be made again" if outdated else "",
        f"{asked - wanted} more would have no room below --max-replicas" if asked > wanted else "",
    ]
    return "; ".join(filter(None, texts))


def claims_text(situation: Situation) -> str:
    """Return how many VMs are claimed, and how many of them the pool replaces, or "" if it says nothing of claims."""
    claimed, limit = len(situation.claimed), situation.intent.max_claimed
    if not claimed and MAX_CLAIMED not in annotations_of(situation.pool):
        return ""
    present = f"{_vms(claimed)} claimed, and left alone" if claimed else "no VM is claimed"
    return f"{present}; others take the place of at most {limit} ({MAX_CLAIMED})"


def _vms(number: int) -> str:
    return f"{number} VM{'' if number == 1 else 's'}"
