"""What a plan does, in short."""

from controller.kubevirt.resources import VMIS
from controller.replicaset.back_off import trial_of
from controller.runtime.actions import Action, Create, Delete, Plan


def names(todo: Plan, kind: type[Action]) -> list[str]:
    return [each.key.name for each in todo.actions if isinstance(each, kind)]


def deleted(todo: Plan) -> list[str]:
    return names(todo, Delete)


def histories(todo: Plan) -> list[int]:
    """The number of consecutive failures before each VMI that the plan creates."""
    return [trial_of(VMIS.decode(each.body)).failures for each in todo.actions if isinstance(each, Create)]


def reasons(todo: Plan) -> list[str]:
    return [notice.reason for notice in todo.notices]
