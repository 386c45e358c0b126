"""The outdated VMs that no update changes, because a setting or a partition leaves them out (P14).

All views read these waits, and the status keeps since when they last.
"""

from controller.kubevirt.annotations import PARTITION
from controller.kubevirt.vms import is_deleting
from controller.pool.members.machine import Machines
from controller.pool.members.revisions import Revisions, is_updated
from controller.pool.members.select import allows
from controller.pool.members.situation import Situation
from controller.pool.rollout.update import pending_steps
from controller.pool.spec.partition import WRONG
from controller.pool.spec.policies import Strategy
from controller.runtime.actions import Plan, join, waiting
from controller.runtime.waits import Why


def plan_left_out(situation: Situation, of_spec: Revisions) -> Plan:
    """Return a plan that says which outdated VMs stay so. `of_spec` are the revisions with the template of the spec,
    also after the VMs have returned from it (P29).
    """
    return join((_by_hand(situation, of_spec), _excluded(situation)))


def count_excluded(situation: Situation) -> int:
    """Return the number of outdated VMs that the partition or the selectors of the update leave out."""
    selection = situation.intent.update.selection
    outdated = _outdated(situation, situation.revisions)
    return sum(not (allows(selection, each.vm) and situation.is_in_steps(each)) for each in outdated)


def _outdated(situation: Situation, revisions: Revisions) -> Machines:
    return situation.members.where(lambda each: not is_deleting(each.vm) and not is_updated(revisions, each))


def _excluded(situation: Situation) -> Plan:
    number = count_excluded(situation)
    if not number:
        return Plan()
    stay, them = ("1 outdated VM stays", "it") if number == 1 else (f"{number} outdated VMs stay", "them")
    if situation.intent.steps == WRONG:
        return waiting(f"{stay} outdated, because the value of {PARTITION} is wrong", Why.BY_HAND)
    why = f"{PARTITION} leaves {them} out" if situation.intent.steps else f"spec.updateStrategy does not select {them}"
    return waiting(f"update: {stay} outdated, because {why}", Why.CHOICE)


def _by_hand(situation: Situation, of_spec: Revisions) -> Plan:
    outdated = len(_outdated(situation, of_spec))
    if not outdated or situation.surplus < 0:
        return Plan()
    are, them = ("1 VM is", "it") if outdated == 1 else (f"{outdated} VMs are", "them")
    match situation.intent.update.strategy:
        case Strategy.UNMANAGED:
            text = f"{are} outdated, and spec.updateStrategy unmanaged leaves {them} so"
        case Strategy.OPPORTUNISTIC if not pending_steps(situation):
            text = f"{are} outdated until a user restarts {them}: spec.updateStrategy is opportunistic"
        case _:
            return Plan()
    return waiting(text, Why.BY_HAND)
