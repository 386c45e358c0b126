"""Reads objects of the API server: which set or pool controls a member, which images a template had."""

from typing import Final

from controller.kubevirt import annotations as names
from controller.kubevirt.resources import VMIS, VMS
from tests.fakes.requests import AnyResource, Document
from tests.simulation.kubevirt import image_of
from tests.simulation.server import Change
from tests.simulation.world import POOLS, SETS

FIELD: Final = {"pool": "virtualMachineTemplate", "set": "template"}


def is_ready(document: Document | None) -> bool:
    conditions = ((document or {}).get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def is_on_standby(vm: Document | None) -> bool:
    """True if the VM waits beside the wanted ones. A VM that was woken has another mark until it is ready."""
    mark, template = standby_mark(vm), ((vm or {}).get("spec") or {}).get("template") or {}
    is_served = (template.get("metadata", {}).get("labels") or {}).get(names.IN_SERVICE) == "true"
    return bool(mark) and not mark.startswith("woken ") and not is_served


def rests_unmarked(vm: Document | None) -> bool:
    """True if the VM is stopped and out of service, and has no mark: a backup has restored a standby."""
    if vm is None or standby_mark(vm) or names.DRAINING in (vm["metadata"].get("annotations") or {}):
        return False
    labels = vm["spec"]["template"]["metadata"].get("labels") or {}
    return labels.get(names.IN_SERVICE) == "false" and vm["spec"].get("runStrategy") == "Halted"


def standby_mark(vm: Document | None) -> str:
    """The mark of a standby, without the name of the VM at its end, or ""."""
    meta = (vm or {}).get("metadata", {})
    mark = (meta.get("annotations") or {}).get(names.STANDBY_STATE, "")
    return mark.removesuffix(f" {meta['name']}") if mark.endswith(f" {meta.get('name')}") else ""


def is_beside(vm: Document) -> bool:
    """True if a user has claimed the VM, or if it waits on standby beside the wanted ones."""
    marks = vm["metadata"].get("annotations") or {}
    return names.CLAIMED_BY in marks or is_on_standby(vm)


def image_in(kind: str, spec: Document) -> str:
    """The image in the spec of a template, or of a VM of a pool or a VMI of a set."""
    return image_of(spec["template"]["spec"] if kind == "pool" else spec)


def may_be_evicted(vmi: Document, vmis: dict[str, Document], budgets: dict[str, Document]) -> bool:
    """True if the Pod of the VMI has no budget, or one that leaves enough ready Pods."""

    def covers(budget: Document, each: Document) -> bool:
        wanted = budget["spec"].get("selector", {}).get("matchLabels") or {}
        return bool(wanted) and wanted.items() <= (each["metadata"].get("labels") or {}).items()

    covering = [each for each in budgets.values() if covers(each, vmi)]
    if len(covering) != 1:
        return not covering
    healthy = [each for each in vmis.values() if covers(covering[0], each) and is_ready(each)]
    return len(healthy) - is_ready(vmi) >= int(covering[0]["spec"]["minAvailable"])


def images_of(changes: list[Change], kind: str, name: str, *, until: float = float("inf")) -> list[str]:
    """The images that the template of a set or pool has had until then, each once in a row."""
    images: list[str] = []
    for change in changes:
        if change.at > until:
            break
        if change.resource is resource_of(kind) and change.key.name == name and change.after is not None:
            image = image_in(kind, template_of(kind, change.after)["spec"])
            if not images or images[-1] != image:
                images.append(image)
    return images


def resource_of(kind: str) -> AnyResource:
    return POOLS if kind == "pool" else SETS


def member_of(kind: str) -> AnyResource:
    return VMS if kind == "pool" else VMIS


def template_of(kind: str, owner: Document) -> Document:
    template: Document = owner["spec"][FIELD[kind]]
    return template


def controller_uid(document: Document) -> str:
    owners = document["metadata"].get("ownerReferences") or ()
    return next((each["uid"] for each in owners if each.get("controller")), "")


def cleared(resource: AnyResource, member: Document, marks: Document) -> Document:
    """The change that ends what holds a member: its marks, its snapshot, its pause and its stop."""
    change: Document = {"metadata": {"annotations": marks}}
    if resource is VMS:
        change["status"] = {"snapshotInProgress": None}
        # A VM that was adopted and never updated keeps its run strategy, which may be its user's (P14).
        is_unknown = names.REVISION_NAME not in (member["metadata"].get("labels") or {})
        if member["spec"].get("runStrategy") == "Halted" or is_unknown:
            change["spec"] = {"runStrategy": "Always"}
    conditions = (member.get("status") or {}).get("conditions") or []
    if any(each["type"] == "Paused" for each in conditions):
        change["status"] = {"conditions": [each for each in conditions if each["type"] != "Paused"]}
    return change
