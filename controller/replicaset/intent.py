"""The parser for the spec of a replica set (R1)."""

from msgspec import Struct

from controller.apimachinery.field_error import FieldError
from controller.apimachinery.label_selectors import Selector
from controller.kubevirt.limits import check_spec
from controller.kubevirt.replicaset_types import ReplicaSet
from controller.replicaset.template import FIELD, Template, parse_template


class Intent(Struct, frozen=True, kw_only=True):
    """A parsed and valid spec. `replicas` is the number in the spec. `wanted` is the number of VMIs that the set may
    have now, with the limit of replicas (R4). `situation_of` sets it.

    The selector is not empty and matches the labels of the template.
    If the VMIs return by themselves (P29), `template` is the one to which they return, and `rejected` is the one of the
    spec. If they cannot have it any more, both are the one of the spec, and `stranded` says why.
    """

    replicas: int
    wanted: int
    selector: Selector
    template: Template
    rejected: Template | None = None
    stranded: str = ""


def parse_intent(owner: ReplicaSet) -> Intent | FieldError:
    """Parse the spec of the set. Return the first error if the spec is invalid."""
    checked = check_spec(owner.spec, parse_template(owner), FIELD)
    if isinstance(checked, FieldError):
        return checked
    replicas, selector, template = checked
    return Intent(replicas=replicas, wanted=replicas, selector=selector, template=template)
