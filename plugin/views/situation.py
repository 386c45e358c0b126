"""What the controller sees of one replica set or pool: counts, members, revisions, the next plan, and what waits.

The values come from a status and a plan, so they are the controller's view of the same objects. `situations` has one
function for each kind.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from itertools import chain
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from controller.apimachinery.conditions import Condition, find_true, time_text
from controller.kinds import POOLS, Kind
from controller.kubevirt.annotations import REMOVE, SUBSTITUTE, is_marked, is_protected
from controller.kubevirt.busy import busy_reason, claim_reason
from controller.kubevirt.problems import NODE_LOST, Problem, text_of
from controller.kubevirt.resources import VMIS, VMS
from controller.kubevirt.standby import has_standby_mark, standby_word
from controller.pool.failures import VIRTUAL_MACHINE_FAILURE
from controller.replicas.catalogue import Place
from controller.replicas.conditions import DEADLINE, REPLICA_BACK_OFF, REPLICA_FAILURE, STALLED
from controller.replicas.draining import mark_of
from controller.replicas.kstatus import MESSAGES, texts_of, word_of
from controller.replicas.wrong_annotations import Wrong, with_hints, wrong_on
from controller.runtime.actions import Outcome, Plan, Skipped
from controller.runtime.waits import Why
from informers.meta import KubeObject, ObjectMeta, labels_of
from plugin.views.edits import field, items
from plugin.views.tables import printable

DELETING: Final = "Deleting"
TERMINATING: Final = "Terminating"

PROTECTED: Final = "protected"
"""The note of a member that its user protects from scale-in."""

FAILURES: Final = frozenset({REPLICA_FAILURE, REPLICA_BACK_OFF, VIRTUAL_MACHINE_FAILURE})

IMAGES: Final = (
    ("containerDisk", "image"),
    ("spec", "source", "registry", "url"),
    ("spec", "source", "http", "url"),
    ("spec", "sourceRef", "name"),
)
"""Where a volume or a template of a DataVolume names an image."""


class Member(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A VM of a pool, or a VMI of a set.

    `revision` is the member's revision, and `running_revision` is the revision of its VMI. `problem` says why the
    member is not ready, and `unready_since` says since when. `finalizers` are the finalizers of a member that is being
    deleted. `note` says how a user has marked the member, for example as protected, and `remedy` is the command that
    ends the mark. `stopped` names the field that keeps a stopped member from running, such as `runStrategy Halted`.
    `beside` is "claimed" or "standby" if the VM does not count towards the wanted number (P32, P33). `lost_node` is the
    node of a lost VM (P28). `image` is the disk image in the template of its revision. `restarts` is the number of
    restarts in its present crash loop, as far as vmherd has seen them, or None.
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
    drains: bool = False
    remedy: str = ""
    stopped: str = ""
    beside: str = ""
    lost_node: str = ""
    image: str = ""
    restarts: int | None = None

    @property
    def is_sick(self) -> bool:
        return self.is_deleting or bool(self.problem) or not (self.is_ready or self.beside == "standby")

    @property
    def is_blocker(self) -> bool:
        return self.drains or (self.is_updated and not self.is_ready and bool(self.problem))

    @property
    def short_path(self) -> str:
        return f"{self.kind}/{self.name}"

    @property
    def path(self) -> str:
        resource = VMS if self.kind == "vm" else VMIS
        return f"{resource.kind.lower()}.{resource.group}/{self.name}"


class Identity(Struct, frozen=True, kw_only=True, rename="camel"):
    """The names of an object: `short` and `resource` as in kubectl, and `noun` for a sentence."""

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
    def short_path(self) -> str:
        return f"{self.short}/{self.name}"

    @property
    def path(self) -> str:
        return f"{self.resource}/{self.name}"


class Situation(Struct, frozen=True, kw_only=True):
    """The state of one set or pool.

    `target` is the number of members that the rollout will update. A partition or update selectors make it smaller
    than `wanted`. `step` is the present step of an update in steps, or "".
    `most_unavailable` is None if no rollout limits the unavailable members, and `percentage` is this limit if a user
    wrote it in percent. `unavailable` is the number that the plan compares with this limit. `by_hand` says why outdated
    members stay outdated until a user acts. `stall` is the condition `Stalled`. `failures` are the messages of the
    failure conditions by type, such as a full quota. `found` is the first problem, as the field `problem` of the status
    names it. `finalizers` are those of an object that is being deleted. `wrong` are the wrong annotations (P23).
    `bridged` is the number of lost VMs in whose place another VM exists (P28). `blockers` are the names of the members
    for which an update may have to wait: of those that drain, and of updated ones that are not ready.
    """

    identity: Identity
    created: datetime | None
    wanted: int
    total: int
    ready: int
    updated: int
    target: int
    unavailable: int = 0
    available: int = 0
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
    step: str = ""
    stall: Condition | None = None
    failures: Mapping[str, str] = {}
    found: str = ""
    wrong: tuple[Wrong, ...] = ()
    bridged: int = 0
    labels: Mapping[str, str] = {}
    blockers: tuple[str, ...] = ()

    @property
    def word(self) -> str:
        """The state in one word. The status of an object that is being deleted has no word for this."""
        return DELETING if self.is_deleting else self.status

    @property
    def beside(self) -> str:
        """The VMs that do not count towards the wanted number, such as ` + 2 standby`, or ""."""
        found = Counter(each.beside for each in self.members if each.beside)
        return "".join(f" + {number} {word}" for word, number in sorted(found.items()))

    @property
    def deletion(self) -> str:
        """The text that the object is being deleted, with the finalizers that it waits for, or ""."""
        waits = f", it waits for the finalizers {', '.join(self.finalizers)}" if self.finalizers else ""
        return f"the {self.identity.noun} is being deleted{waits}" if self.is_deleting else ""

    @property
    def stalled(self) -> str:
        return f"stalled: {printable(self.stall.message or self.stall.reason or STALLED)}" if self.stall else ""

    def dated(self, text: str) -> str:
        """Return the text of a wait with the time since which it lasts, if the status has it."""
        return self.found if text and self.found.startswith(text) else text

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


def situation_from_status(kind: Kind[Any], group: str, owner: Any, status: Any, **fields: Any) -> Situation:
    """Return what the object and a status show. `fields` has the fields that a snapshot shows in another way.

    KubeVirt's own controller writes no number of updated VMs. If the status lacks this number, all VMs count as
    updated.
    """
    meta, conditions = owner.metadata, getattr(status, "conditions", None)
    wanted = 1 if owner.spec.replicas is None else owner.spec.replicas
    total, ready, updated = (getattr(status, name, None) for name in ("replicas", "ready_replicas", "updated_replicas"))
    total, ready = total or 0, ready or 0
    current, old = (
        (getattr(status, name, None) or "").removeprefix(f"{meta.name}-")
        for name in ("update_revision", "current_revision")
    )
    place = Place.POOL if kind is POOLS else Place.SET
    observed = getattr(owner.status, "observed_generation", None)
    shown: dict[str, Any] = {
        "identity": identity_of(kind, group, meta),
        "created": meta.creation_timestamp,
        "labels": labels_of(meta),
        "wanted": wanted,
        "total": total,
        "ready": ready,
        "updated": total if updated is None else updated,
        "target": wanted,
        "unavailable": max(wanted - ready, 0),
        "available": min(wanted, ready),
        "revision": current,
        "old_revision": old,
        "status": _word(status, wanted, total, ready, paused=bool(owner.spec.paused)),
        "is_observed": observed is None or meta.generation is None or observed >= meta.generation,
        "is_paused": bool(owner.spec.paused),
        "is_deleting": meta.deletion_timestamp is not None,
        "finalizers": finalizers_of(meta),
        "failures": failures_of(conditions),
        "found": _problem(status),
        "stall": find_true(conditions, STALLED),
        "blockers": tuple(each.name for each in fields.get("members", ()) if each.is_blocker and not each.beside),
        "wrong": with_hints(wrong_on(meta, place)),
    }
    return Situation(**{**shown, **fields})


def situation_in_plan(kind: Kind[Any], group: str, snapshot: Any, plan: Plan, status: Any, **fields: Any) -> Situation:
    """`status` is what the controller would write with the plan. `fields` has the other fields."""
    before, is_valid = snapshot.owner.status, not fields.get("invalid")
    # With an invalid spec, the controller tries no write. A failure in the status is then an old one.
    failing = [each.conditions for each in (status, before) if each is not None and is_valid]
    by_hand = next((each.text for each in plan.waits if each.why is Why.BY_HAND), "")
    situation = situation_from_status(
        kind,
        group,
        snapshot.owner,
        status,
        plan=plan,
        by_hand=fields.pop("by_hand", by_hand),
        failures=failures_of(*failing),
        wrong=snapshot.wrong_annotations,
        **fields,
    )
    noted = find_true(before.conditions if before is not None else None, STALLED)
    if situation.stall is not None or noted is None or noted.reason != DEADLINE:
        return situation
    # The controller remembers for longer than the objects tell since when a member of a crash loop is not ready.
    is_down = any(each.unready_since is not None for each in situation.members)
    return replace(situation, stall=noted) if is_down and situation.is_observed else situation


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


def failures_of(*conditions: Iterable[Condition] | None) -> Mapping[str, str]:
    """Return the messages of the failure conditions that are true. The first list with a type counts."""
    found: dict[str, str] = {}
    for condition in chain.from_iterable(each or () for each in conditions):
        if condition.status == "True" and condition.type in FAILURES:
            found.setdefault(condition.type, text_of(condition))
    return found


def told_of(member: Member, problem: Problem | None, texts: Iterable[str]) -> Member:
    """Return the member with its problem as the status names it. `texts` are those of the status."""
    if problem is None:
        return member
    found = problem.after(texts)
    lost = member.node if found.state == NODE_LOST else ""
    return replace(member, status=found.state, problem=found.detail, lost_node=lost)


def image_in(spec: bytes | msgspec.Raw) -> str:
    """Return the first image in the spec of a VM or VMI, or "" if there is none."""
    try:
        document = msgspec.json.decode(spec)
    except msgspec.DecodeError:
        return ""
    places = (("template", "spec", "volumes"), ("volumes",), ("dataVolumeTemplates",))
    volumes = [volume for path in places for volume in items(document, path)]
    found = (field(volume, path) for volume in volumes for path in IMAGES)
    return next((each for each in found if isinstance(each, str)), "")


def not_yet_tried(plan: Plan) -> tuple[Outcome, ...]:
    """Return the outcomes of a plan whose writes were not tried yet. With them, a failure stays in the status."""
    return tuple(map(Skipped, plan.actions))


def finalizers_of(meta: ObjectMeta) -> tuple[str, ...]:
    """Return the finalizers that delay the deletion of an object. An object that stays has none."""
    return tuple(meta.finalizers or ()) if meta.deletion_timestamp is not None else ()


def marks_of(obj: KubeObject, kind: str, now: datetime) -> dict[str, Any]:
    """Return the fields `note`, `drains` and `remedy` of a member: the marks that count now, and the command that ends
    the first of those that keep it. `kind` is vm or vmi.
    """
    meta, drain, busy = obj.metadata, mark_of(obj.metadata), busy_reason(obj, now)
    claim = claim_reason(meta, now) if kind == "vm" else ""
    marks = (
        PROTECTED if is_protected(meta) else "",
        "removed first" if is_marked(meta, REMOVE) else "",
        "substitute" if is_marked(meta, SUBSTITUTE) else "",
        f"standby, {printable(standby_word(meta))}" if has_standby_mark(meta) else "",
        printable(busy or claim).removeprefix("it is "),
        f"drains until {time_text(drain.until)} ({printable(drain.cause)})" if drain is not None else "",
    )
    name = f"{kind}/{meta.name}"
    keeps = {f"unprotect {name}": is_protected(meta), f"busy {name} --clear": busy, f"release {name} --keep": claim}
    remedy = next((f"kubectl vmherd {command}" for command, reason in keeps.items() if reason), "")
    return {"note": ", ".join(filter(None, marks)), "drains": drain is not None, "remedy": remedy}


def _problem(status: Any) -> str:
    """Return the first problem. KubeVirt's CRDs have no field for it, so the conditions are read too."""
    texts = texts_of(getattr(status, "conditions", None))
    said = [getattr(status, "problem", None), *(text for text in texts if text not in MESSAGES.values())]
    return printable(next(filter(None, said), ""))


def _word(status: Any, wanted: int, total: int, ready: int, *, paused: bool) -> str:
    """Return the word of the status. KubeVirt's CRDs have no field for the word, so the conditions are read too."""
    conditions = getattr(status, "conditions", None)
    said = word_of(getattr(status, "printable_status", None), conditions)
    if said:
        return said
    if find_true(conditions, STALLED) is not None:
        return "Degraded"
    if paused:
        return "Paused"
    if status is None or total != wanted:
        return "Scaling"
    return "Running" if ready >= wanted else "Degraded"
