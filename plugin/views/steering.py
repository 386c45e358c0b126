"""The changes that `rollout restart`, `pause` and `resume` make, and the reasons to refuse them."""

from typing import Any, Final

from controller.kinds import POOLS, Kind
from controller.kubevirt.annotations import INDEX_SYSPREP, PARTITION_STEP, ROLLED_BACK, ROLLING_UPDATE, is_marked
from controller.kubevirt.pool_types import Pool
from controller.pool.spec.partition import noted_step, parse_partition, step_note
from controller.pool.spec.template import Template, parse_template
from informers.meta import annotations_of
from plugin.views.edits import ABSENT, Document, Edit, field

RESTARTED_AT: Final = "kubectl.kubernetes.io/restartedAt"
"""kubectl's annotation on a template. A new value makes a new template."""

PAUSED: Final = ("spec", "paused")


class Refused(Exception):
    """The object does not allow the change. `str(error)` is a line for the user."""


def restart_edits(kind: Kind[Any], document: Document, at: str) -> tuple[Edit, ...]:
    """Return the change that makes the controller restart all VMs.

    Raise Refused if the object is paused, or if its update strategy restarts no VM.

    The annotation is on the VMI template, because an annotation on the VM template restarts nothing (P13).
    """
    name = field(document, ("metadata", "name"))
    if is_paused(document):
        raise Refused(f"can't restart paused {kind.noun} {name!r} (run rollout resume first)")
    if kind is POOLS:
        for other in ("opportunistic", "unmanaged"):
            if field(document, ("spec", "updateStrategy", other)) is not ABSENT:
                raise Refused(
                    f"can't restart pool {name!r}: it restarts no VM, because spec.updateStrategy is {other}; "
                    "restart its VMs with virtctl restart"
                )
    elif field(document, ("metadata", "annotations", ROLLING_UPDATE)) is ABSENT:
        raise Refused(
            f"can't restart replica set {name!r}: it replaces no VMI without the annotation {ROLLING_UPDATE}; "
            f'set it with kubectl annotate, for example to "maxUnavailable=25%"'
        )
    template = ("spec", *(("virtualMachineTemplate", "spec") if kind is POOLS else ()), "template")
    path = (*template, "metadata", "annotations", RESTARTED_AT)
    if field(document, path) == at:
        raise Refused("if restart has already been triggered within the past second, please wait before attempting it")
    return (Edit(path, at),)


def pause_edits(document: Document, plural: str, *, paused: bool) -> tuple[Edit, ...]:
    """Return the change that pauses or resumes an object. Raise Refused if the object is already in this state."""
    if is_paused(document) == paused:
        name = field(document, ("metadata", "name"))
        raise Refused(f'{plural} "{name}" is {"already" if paused else "not"} paused')
    return (Edit(PAUSED, True if paused else ABSENT),)


def resume_edits(target: Any, document: Document, plural: str) -> tuple[Edit, ...]:
    """Return the change that ends the pause of an object, or that begins the next step of a pool's update. `target` is
    the decoded object. Raise Refused if it is neither paused nor before a further step.
    """
    meta, status = target.metadata, target.status
    is_sysprep = is_marked(meta, INDEX_SYSPREP)
    template = parse_template(target.spec, index_sysprep=is_sysprep) if isinstance(target, Pool) else None
    is_done = status is None or (status.updated_replicas or 0) >= (status.replicas or 0)
    is_done = is_done or ROLLED_BACK in annotations_of(meta)  # nothing goes on after a return
    if isinstance(template, Template) and not (is_done or is_paused(document)):
        step, steps = noted_step(meta, template.digest)[0] + 1, len(parse_partition(meta))
        if step <= steps:
            return (Edit(("metadata", "annotations", PARTITION_STEP), step_note(meta, template.digest, step)),)
        if steps > 1:
            raise Refused(f'{plural} "{meta.name}" is not paused, and its update is in the last step')
    return pause_edits(document, plural, paused=False)


def is_paused(document: Document) -> bool:
    return field(document, PAUSED) is True


def pause_note(kind: Kind[Any]) -> str:
    """Return the note for users that names what else a pause stops, such as scaling."""
    heals = " and not healed" if kind is POOLS else ", and ended VMIs are not replaced"
    return f"Note: while it is paused, the {kind.noun} is also not scaled{heals}."
