"""The specs that VMs were made from, kept as ControllerRevisions (P11).

A revision is the pool's if the pool controls it. The one made for the pool's present generation is current by
definition, however it spells the template: a generation has one spec. Otherwise a revision is current if its template
means what the pool's means. So scaling makes no revision, and going back to an earlier template makes none either: its
revision becomes the current one again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Raw, Struct

from controller.apimachinery.field_error import FieldError
from controller.apimachinery.owner_references import controller_reference
from controller.apimachinery.server_json import encode_as_server
from controller.kubevirt.annotations import REVISION_NAME
from controller.kubevirt.pool_types import PoolSpec
from controller.kubevirt.resources import CONTROLLER_REVISIONS
from controller.kubevirt.vm_types import ControllerRevision, VirtualMachine
from controller.kubevirt.vms import revision_of
from controller.pool.snapshot import Snapshot
from controller.pool.template import Template, parse_template
from controller.runtime.plan import Create, Delete, Plan, Stage
from informers.meta import ObjectKey, labels_of

LABEL_LENGTH: Final = 63
"""How long a label's value may be, which the name of a revision is."""

_decode_spec = msgspec.json.Decoder(PoolSpec).decode


class Revisions(Struct, frozen=True, kw_only=True):
    """The templates that the pool has had, by the name of their revision. `is_kept` tells whether `current` exists."""

    current: str
    template: Template
    is_kept: bool
    templates: Mapping[str, Template]

    def is_current(self, name: str) -> bool:
        """Whether what carries this revision is as the pool's template says now (P12)."""
        template = self.templates.get(name)
        return template is not None and template.digest == self.template.digest


def read_revisions(snapshot: Snapshot, template: Template) -> Revisions:
    """Which revisions there are, and which is the current template's; its name, where none is there yet."""
    generation = snapshot.owner.metadata.generation
    templates: dict[str, Template] = {}
    matching: list[tuple[int, str]] = []
    for revision in snapshot.revisions:
        if revision.metadata.deletion_timestamp is not None:
            continue
        name = revision.metadata.name
        past = template if revision.revision == generation else template_of(revision)
        if past is not None:
            templates[name] = past
            if past.digest == template.digest:
                matching.append((revision.revision, name))
    current = max(matching)[1] if matching else _new_name(snapshot, template)
    return Revisions(current=current, template=template, is_kept=bool(matching), templates=templates)


def plan_revision(snapshot: Snapshot, revisions: Revisions) -> tuple[Stage, ...]:
    """Keep the current template's revision, before anything is made from it."""
    if revisions.is_kept:
        return ()
    owner = snapshot.owner.metadata
    body = {
        "apiVersion": CONTROLLER_REVISIONS.api_version,
        "kind": CONTROLLER_REVISIONS.kind,
        "metadata": {
            "name": revisions.current,
            "namespace": owner.namespace,
            "ownerReferences": [controller_reference(snapshot.pools, owner)],
        },
        "revision": owner.generation or 0,
        "data": Raw(encode_as_server(snapshot.owner.spec)),
    }
    create = Create(
        resource=CONTROLLER_REVISIONS,
        key=ObjectKey(owner.namespace, revisions.current),
        body=msgspec.json.encode(body),
        owner_uid=owner.uid,
        why="the first of this template",
    )
    return (Stage((create,)),)


def plan_pruning(snapshot: Snapshot, revisions: Revisions) -> Plan:
    """Delete revisions that nobody refers to, but the newest, which stay for undo."""
    used = {revision_of(vm) for vm in (*snapshot.members, *snapshot.strays)}
    used |= {labels_of(vmi.metadata).get(REVISION_NAME, "") for vmi in snapshot.vmis.values()}
    used.add(revisions.current)
    idle = [
        revision
        for revision in snapshot.revisions
        if revision.metadata.name not in used and revision.metadata.deletion_timestamp is None
    ]
    idle.sort(key=lambda revision: (-revision.revision, revision.metadata.name))
    deletes = tuple(
        Delete(
            resource=CONTROLLER_REVISIONS,
            key=revision.metadata.key,
            uid=revision.metadata.uid,
            why="no VM is made from it any more",
        )
        for revision in idle[snapshot.limits.revision_history :][: snapshot.limits.burst]
    )
    return Plan(stages=(Stage(deletes, essential=False),) if deletes else ())


def oldest_in_use(snapshot: Snapshot, revisions: Revisions, members: tuple[VirtualMachine, ...]) -> str:
    """The revision that a rollout started from: the oldest that a member is made from, else the current one."""
    numbers = {revision.metadata.name: revision.revision for revision in snapshot.revisions}
    older = {revision_of(vm) for vm in members if not revisions.is_current(revision_of(vm))} & numbers.keys()
    return min(older, key=lambda name: (numbers[name], name), default=revisions.current)


def template_of(revision: ControllerRevision) -> Template | None:
    """The template that it keeps; None where nobody could make a VM from it."""
    try:
        template = parse_template(_decode_spec(revision.data))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return None if isinstance(template, FieldError) else template


def _new_name(snapshot: Snapshot, template: Template) -> str:
    """`<pool>-<generation>`; with the template's digest where that is taken, or too long for the label of its VMs."""
    owner = snapshot.owner.metadata
    generation = owner.generation or 0
    name = f"{owner.name}-{generation}"
    if len(name) <= LABEL_LENGTH and name not in snapshot.revision_names:
        return name
    ending = f"-{generation}-{template.digest[:8]}"
    return owner.name[: LABEL_LENGTH - len(ending)] + ending
