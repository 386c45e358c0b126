"""The parser for the spec of a replica set (R1)."""

from msgspec import Struct

from controller.apimachinery.field_error import FieldError, quoted
from controller.apimachinery.label_selectors import LabelSelector, Selector, parse_selector
from controller.kubevirt.replicaset_types import ReplicaSet
from controller.replicaset.template import Template, parse_template


class Intent(Struct, frozen=True, kw_only=True):
    """A parsed and valid spec. `wanted` is the wanted number of VMIs.

    The selector is not empty and matches the labels of the template.
    If the VMIs return by themselves (P29), `template` is the one to which they return, and `rejected` is the one of the
    spec. If they cannot have it any more, both are the one of the spec, and `stranded` says why.
    """

    wanted: int
    selector: Selector
    template: Template
    rejected: Template | None = None
    stranded: str = ""


def parse_intent(owner: ReplicaSet) -> Intent | FieldError:
    """Parse the spec of the set. Return the first error if the spec is invalid.

    If `spec.replicas` is absent, 1 VMI is wanted.
    """
    wanted = 1 if owner.spec.replicas is None else owner.spec.replicas
    if wanted < 0:
        return FieldError(f"spec.replicas is {wanted}: it must not be negative")
    selector = parse_selector(owner.spec.selector or LabelSelector())
    if isinstance(selector, FieldError):
        return selector
    if selector.is_empty:
        return FieldError("spec.selector is empty: it would match every virtual machine of the namespace")
    template = parse_template(owner)
    if isinstance(template, FieldError):
        return template
    if template.wrong_quantity is not None:
        return template.wrong_quantity
    if not selector.matches(template.labels):
        return FieldError(f"spec.selector {quoted(str(selector))} does not match spec.template.metadata.labels")
    return Intent(wanted=wanted, selector=selector, template=template)
