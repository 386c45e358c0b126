"""S11: the controller writes only the fields that it owns, and members have the content of their template.

The fields of each kind:

- a set: only the status, through the subresource `status`;
- a pool: the status, the pool finalizer, and annotations `vmherd.dev/...`;
- a VMI: ownerReferences, and the label of the revision;
- a VM: finalizers, ownerReferences, and what the template changed: labels, annotations and spec;
- a disk: ownerReferences; a revision: nothing.

A member may have the template of any state that the owner had in the window of the write. A VM may
also have the template of its revision, and some names in the VM's spec end with the ordinal of the VM (P5).
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from tests.faults.judge import states
from tests.faults.judge.history import Change, History, shown
from tests.faults.judge.invariants_objects import without_nulls
from tests.faults.judge.judge import Finding, Run, found, invariant
from tests.faults.judge.reasons import revision_of, templates_of
from tests.faults.judge.states import BUDGET, DATA_VOLUME, POOL, PVC, REVISION, SET, VM, VMI, Object
from tests.faults.judge.timelines import Step, our_creates

DRAINS: Final = tuple(f"/metadata/annotations/{mark}" for mark in (states.DRAINING, states.DRAINED))
"""The marks of VMs and VMIs that drain (P26)."""

IGNORED: Final = ("/metadata/resourceVersion", "/metadata/generation")
FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    SET: tuple(f"/metadata/annotations/{states.PREFIX}{name}" for name in ("adopted-template", *states.RETURN_NOTES)),
    POOL: ("/metadata/finalizers", f"/metadata/annotations/{states.PREFIX}"),
    VMI: ("/metadata/ownerReferences", f"/metadata/labels/{states.REVISION_LABEL}", *DRAINS),
    VM: ("/metadata/finalizers", "/metadata/ownerReferences", "/metadata/labels", "/metadata/annotations", "/spec"),
    DATA_VOLUME: ("/metadata/ownerReferences",),
    PVC: ("/metadata/ownerReferences", "/spec/resources/requests/storage"),
    REVISION: ("/revision",),
    BUDGET: ("/metadata/labels", "/spec/minAvailable", "/spec/maxUnavailable", "/spec/selector"),
}
"""The fields that the controller writes, by kind."""

OLD_SPELLINGS: Final = ("volumeName", "registryDisk", '"disk":null')
"""A template with these fields is converted (R13), so its VMIs differ from it."""


@invariant("S11")
def s11_only_own_fields_are_written(history: History, run: Run) -> Iterator[Finding]:
    for change in history.changes:
        author = change.author
        if not change.ours or author is None or author.verb != "patch" or not change.before or not change.after:
            continue
        yield found("S11", _foreign_fields(history, change), change)
    for step in our_creates(history):
        yield found("S11", _wrong_content(history, run, step), step.change)


def _foreign_fields(history: History, change: Change) -> str:
    allowed = ("/status",) if change.write.subresource == "status" else FIELDS[change.kind]
    paths = [path for path in states.differences(change.before, change.after) if path not in IGNORED]
    foreign = [path for path in paths if not path.startswith(allowed)] if allowed else paths
    if not foreign and change.kind == VM:
        foreign = _beyond_template(history, change, paths)
    return f"{change.write} changes {foreign} of {change.name}" if foreign else ""


def _beyond_template(history: History, change: Change, paths: list[str]) -> list[str]:
    """Return the changed fields of a VM that are equal in the old and the new template."""
    versions = [item or {"metadata": {}} for item in (change.before, change.after)]
    pool_uid = next(filter(None, map(states.controller_uid, versions)), "")
    old, new = (revision_of(history, item, pool_uid) for item in versions)
    if old is None or new is None:
        return []
    templates = [spec.get("virtualMachineTemplate") or {} for spec in (old, new)]
    changed = [*states.differences(*(_vm_shape(each) for each in templates)), *REFERENCES]
    if old.get("nameGeneration") != new.get("nameGeneration"):
        changed.append(VOLUMES)
    return [path for path in paths if not any(path.startswith(each) or each.startswith(path) for each in changed)]


REFERENCES: Final = (
    "/metadata/finalizers",
    "/metadata/ownerReferences",
    f"/metadata/labels/{states.REVISION_LABEL}",
    f"/spec/template/metadata/labels/{states.REVISION_LABEL}",
    f"/metadata/annotations/{states.SUBSTITUTE}",
    *DRAINS,
)


VOLUMES: Final = "/spec/template/spec/volumes"
"""The volumes of a VM. `nameGeneration` decides whether their references end with the ordinal."""


def _vm_shape(template: Object) -> Object:
    metadata = template.get("metadata") or {}
    own = {key: metadata.get(key) or {} for key in ("labels", "annotations")}
    return {"metadata": own, "spec": template.get("spec") or {}}


def _wrong_content(history: History, run: Run, step: Step) -> str:
    author, timeline = step.change.author, step.timeline
    # The body of the request, because webhooks may add fields to the stored object.
    item = author.body if author is not None and isinstance(author.body, dict) else step.change.object
    templates = templates_of(history, timeline, run, step.index)
    if timeline.kind == POOL:
        own = revision_of(history, item, states.controller_uid(item))
        if own is None:
            return f"{step.change.name} has no revision in the history"
        # A template in another spelling has the earlier revision of the same meaning, such as 64M and 0.064G.
        templates.append(own.get("virtualMachineTemplate") or {})
        ordinal = states.ordinal_of(timeline.name, step.change.name)
        fits = any(_has_spec(template, item, f"-{ordinal}") for template in templates)
    else:
        if any(each in shown(templates, 10**9) for each in OLD_SPELLINGS):
            return ""
        fits = any(_has_spec(template, item, "") for template in templates)
    return "" if fits else f"{step.change.name} differs from its template"


def _has_spec(template: Object, item: Object, suffix: str) -> bool:
    metadata = template.get("metadata") or {}
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    own = {
        key: value
        for key, value in states.labels_of(item).items()
        if key not in (states.HASH_LABEL, states.REVISION_LABEL)
    }
    noted = {
        key: value
        for key, value in states.annotations_of(item).items()
        if not key.startswith(states.PREFIX) or key in annotations
    }
    if own != {key: value for key, value in labels.items() if key not in (states.HASH_LABEL, states.REVISION_LABEL)}:
        return False
    return noted == annotations and _equal(
        without_nulls(template.get("spec") or {}), without_nulls(item.get("spec") or {}), suffix
    )


def _equal(template: Any, value: Any, suffix: str) -> bool:
    """Return True if the value equals the template's value. A text in the value may also end with `suffix`."""
    if isinstance(template, dict) and isinstance(value, dict):
        value, template = (
            {k: each for k, each in item.items() if k != states.REVISION_LABEL} for item in (value, template)
        )
        value, template = (
            {key: each for key, each in item.items() if key in other or not _is_shell(each)}
            for item, other in ((value, template), (template, value))
        )
        same = template.keys() == value.keys()
        return same and all(_equal(each, value[key], suffix) for key, each in template.items())
    if isinstance(template, list) and isinstance(value, list):
        return len(template) == len(value) and all(map(_equal, template, value, [suffix] * len(value)))
    return bool(template == value) or (bool(suffix) and isinstance(template, str) and value == template + suffix)


def _is_shell(value: Any) -> bool:
    """Return True if the value has no content, or only the label of the revision.

    A template with `volumes: []` has the revision of the template without `volumes`, because both mean the same.
    """
    if isinstance(value, list):
        return not value
    return isinstance(value, dict) and all(
        key == states.REVISION_LABEL or _is_shell(each) for key, each in value.items()
    )
