"""What the controller sees of one replica set or pool: counts, members, revisions, the next plan, and what waits.

The values come from the controller's own functions, so they are the controller's view of the same objects.
`situations` has one function for each kind.
"""

from collections.abc import Iterable
from datetime import datetime
from itertools import chain
from typing import Any, Final

from msgspec import Struct

from controller.apimachinery.conditions import Condition, find_true
from controller.kinds import Kind
from controller.kubevirt.annotations import REMOVE, SUBSTITUTE, is_marked, is_protected
from controller.kubevirt.busy import busy_reason
from controller.kubevirt.resources import VMIS, VMS
from controller.pool.failures import VIRTUAL_MACHINE_FAILURE
from controller.replicas.conditions import DEADLINE, REPLICA_BACK_OFF, REPLICA_FAILURE, STALLED
from controller.replicas.draining import mark_of, time_text
from controller.runtime.actions import Outcome, Plan, Skipped
from controller.runtime.waits import Why
from informers.meta import KubeObject, ObjectMeta
from plugin.views.tables import printable

DELETING: Final = "Deleting"

PROTECTED: Final = "protected"
"""The note of a member that its user protects from scale-in."""

FAILURES: Final = frozenset({REPLICA_FAILURE, REPLICA_BACK_OFF, VIRTUAL_MACHINE_FAILURE})


class Member(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A VM of a pool, or a VMI of a set.

    `revision` is the member's revision, and `running_revision` is the revision of its VMI. `problem` says why the
    member is not ready, and `unready_since` says since when. `finalizers` are the finalizers of a member that is being
    deleted. `note` says how a user has marked the member, for example as protected. `stopped` names the field that
    keeps a stopped member from running, such as `runStrategy Halted`. `lost_node` is the node of a lost VM (P28).
    """

    kind: str
    name: str
    revision: str = ""
    running_revision: str = ""
    status: str = ""
    is_ready: bool = False
    is_updated: bool = False
    is_deleting: bool = False
    node: str = ""
    created: datetime | None = None
    problem: str = ""
    unready_since: datetime | None = None
    finalizers: tuple[str, ...] = ()
    note: str = ""
    stopped: str = ""
    lost_node: str = ""

    @property
    def path(self) -> str:
        resource = VMS if self.kind == "vm" else VMIS
        return f"{resource.kind.lower()}.{resource.group}/{self.name}"


class Identity(Struct, frozen=True, kw_only=True, rename="camel"):
    """The names of an object: `short` is kubectl's short name of its type, and `resource` the long form of kubectl.
    `noun` is the kind in a sentence.
    """

    short: str
    noun: str
    resource: str
    plural: str
    member: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f'{self.short} "{self.name}"'

    @property
    def path(self) -> str:
        return f"{self.resource}/{self.name}"


class Situation(Struct, frozen=True, kw_only=True):
    """The state of one set or pool.

    `target` is the number of members that the rollout will update. A partition or update selectors make it smaller
    than `wanted`, and `left_out` says so. `step` is the present step of an update in steps, or "".
    `most_unavailable` is None if no rollout limits the unavailable members, and `percentage` is this limit if a
    user wrote it in percent. `by_hand` says why outdated members stay outdated until a user acts. `recreation_held`
    is True if an update waits for leave to delete VMs with their disks. `stalled` says what the condition says.
    `failures` are the failures that the status reports, such as a full quota. `found` is the first problem, as the
    field `problem` of the status names it. `finalizers` are those of an object that is being deleted. `wrong` are
    the wrong annotations (P23). `bridged` is the number of lost VMs in whose place another VM exists (P28).
    """

    identity: Identity
    created: datetime | None
    wanted: int
    total: int
    ready: int
    updated: int
    target: int
    unavailable: int = 0
    most_unavailable: int | None = None
    percentage: str = ""
    revision: str = ""
    old_revision: str = ""
    status: str = ""
    members: tuple[Member, ...] = ()
    plan: Plan = Plan()
    is_observed: bool = True
    is_paused: bool = False
    is_deleting: bool = False
    finalizers: tuple[str, ...] = ()
    invalid: str = ""
    by_hand: str = ""
    left_out: str = ""
    step: str = ""
    recreation_held: bool = False
    stalled: str = ""
    failures: tuple[str, ...] = ()
    found: str = ""
    wrong: tuple[str, ...] = ()
    bridged: int = 0

    @property
    def word(self) -> str:
        """The state in one word. The status of an object that is being deleted has no word for this."""
        return DELETING if self.is_deleting else self.status

    @property
    def deletion(self) -> str:
        """The text that the object is being deleted, with the finalizers that it waits for, or ""."""
        waits = f", it waits for the finalizers {', '.join(self.finalizers)}" if self.finalizers else ""
        return f"the {self.identity.noun} is being deleted{waits}" if self.is_deleting else ""

    @property
    def problem(self) -> str:
        """The first problem, or "". Each command that names one cause of the state names this one."""
        return self.deletion or (self.invalid and f"invalid: {self.invalid}") or self.found

    @property
    def stops(self) -> str:
        """The number of stopped VMs with the field that stops them, or ""."""
        return next((each.text for each in self.plan.waits if each.why is Why.START), "")

    @property
    def revisions(self) -> str:
        """The revision, or the old and the new revision during an update, such as `2->3`."""
        if self.old_revision and self.revision and self.old_revision != self.revision:
            return f"{self.old_revision}->{self.revision}"
        return self.revision or self.old_revision


def situation_of_owner(kind: Kind[Any], group: str, owner: Any, **fields: Any) -> Situation:
    """Return a situation with what the object itself shows. `fields` has the other fields."""
    meta, status = owner.metadata, owner.status
    return Situation(
        identity=identity_of(kind, group, meta),
        created=meta.creation_timestamp,
        is_observed=is_observed(meta, status.observed_generation if status is not None else None),
        is_paused=bool(owner.spec.paused),
        is_deleting=meta.deletion_timestamp is not None,
        finalizers=finalizers_of(meta),
        **fields,
    )


def situation_in_plan(kind: Kind[Any], group: str, snapshot: Any, status: Any, **fields: Any) -> Situation:
    """Return a situation with what the object, its snapshot and its plan show. `fields` has the other fields. `status`
    is the status that the controller would write with the plan.
    """
    before = snapshot.owner.status
    return situation_of_owner(
        kind,
        group,
        snapshot.owner,
        total=status.replicas or 0,
        ready=status.ready_replicas or 0,
        status=status.printable_status or "",
        found=printable(status.problem or ""),
        # With an invalid spec, the controller tries no write. A failure in the status is then an old one.
        failures=failures_of(*(each.conditions for each in (status, before) if each and not fields["invalid"])),
        stalled=stall_of(status.conditions) or _known_stall(snapshot.owner, fields["members"]),
        wrong=tuple(each.text for each in snapshot.wrong_annotations),
        **fields,
    )


def identity_of(kind: Kind[Any], group: str, meta: ObjectMeta) -> Identity:
    names = kind.own_short_names if group == kind.own_group else kind.short_names
    return Identity(
        short=names[0],
        noun=kind.noun,
        resource=f"{kind.singular}.{group}",
        plural=f"{kind.plural}.{group}",
        member="VM" if kind.finalized is not None else "VMI",
        namespace=meta.namespace,
        name=meta.name,
    )


def failures_of(*conditions: Iterable[Condition] | None) -> tuple[str, ...]:
    """Return the messages of the failure conditions whose status is "True". The first list with a type counts."""
    found: dict[str, str] = {}
    for condition in chain.from_iterable(each or () for each in conditions):
        if condition.status == "True" and condition.type in FAILURES:
            text = printable(condition.message or condition.reason or "")
            found.setdefault(condition.type, f"{condition.type}: {text}")
    return tuple(found.values())


def not_yet_tried(plan: Plan) -> tuple[Outcome, ...]:
    """Return the outcomes of a plan whose writes were not tried yet. With them, a failure stays in the status."""
    return tuple(map(Skipped, plan.actions))


def finalizers_of(meta: ObjectMeta) -> tuple[str, ...]:
    """Return the finalizers that delay the deletion of an object. An object that stays has none."""
    return tuple(meta.finalizers or ()) if meta.deletion_timestamp is not None else ()


def marks_of(obj: KubeObject, now: datetime) -> str:
    """Return the marks of a user on a VM or VMI that count now, and the mark of its drain, separated by commas."""
    meta, drain = obj.metadata, mark_of(obj.metadata)
    marks = (
        PROTECTED if is_protected(meta) else "",
        "removed first" if is_marked(meta, REMOVE) else "",
        "substitute" if is_marked(meta, SUBSTITUTE) else "",
        printable(busy_reason(obj, now)).removeprefix("it is "),
        f"drains until {time_text(drain.until)} ({printable(drain.cause)})" if drain is not None else "",
    )
    return ", ".join(filter(None, marks))


def is_observed(meta: ObjectMeta, observed: int | None) -> bool:
    """A status without an observed generation counts as up to date."""
    return observed is None or meta.generation is None or observed >= meta.generation


def stall_of(conditions: Iterable[Condition] | None) -> str:
    """Return what the condition `Stalled` says, or "" if the condition is absent."""
    stalled = find_true(conditions, STALLED)
    return f"stalled: {printable(stalled.message or stalled.reason or STALLED)}" if stalled is not None else ""


def _known_stall(owner: Any, members: Iterable[Member]) -> str:
    """Return what the controller has written about the progress deadline of a member, or "" if that is outdated.

    The controller remembers for longer than the objects tell how long a member of a crash loop has not been ready.
    """
    stalled = find_true(owner.status.conditions if owner.status is not None else None, STALLED)
    if stalled is None or stalled.reason != DEADLINE:
        return ""
    text, down = stall_of((stalled,)), (each.name for each in members if each.unready_since is not None)
    is_new = is_observed(owner.metadata, owner.status.observed_generation)
    return text if is_new and any(text.startswith(f"stalled: {name}: ") for name in down) else ""
