"""Moments of a life: what plans, statuses and views say about each set and pool, from the state on the server.

At a moment, the caches of the controllers do not matter: the judge reads the server, and asks the real rules.
"""

import traceback
from collections.abc import Iterable, Iterator
from datetime import timedelta
from random import Random
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from controller import kinds
from controller.assembly import BUDGET_CACHE, MIGRATION_CACHE, Cache, merged_caches
from controller.events.event import EVENTS
from controller.kinds import Kind
from controller.kubevirt import annotations as names
from controller.kubevirt.live_updates import RolloutSettings
from controller.kubevirt.resources import CONTROLLER_REVISIONS, DISRUPTION_BUDGETS, MIGRATIONS, VMIS, VMS
from controller.kubevirt.standby import mark_in
from controller.runtime.actions import Create, Delete, Plan, label_of
from controller.runtime.members.groups import one_by_one
from informers.meta import ObjectKey
from informers.store import Store
from plugin.reading import situation_of
from plugin.views.history import history_of_pool, history_of_set, previous_revision, template_in
from plugin.views.reasons import Reason, reasons_of
from plugin.views.scaling import preview
from plugin.views.situation import Situation
from plugin.views.steering import Refused
from tests.fakes.requests import AnyResource, Document
from tests.simulation.features import in_force
from tests.simulation.foretold import Foretold, foretold_of, foretold_scale
from tests.simulation.kubevirt import image_of
from tests.simulation.live import IMMOVABLE, LIVE_UPDATE, STAGE
from tests.simulation.objects import FIELD, controller_uid, image_in, images_of, resource_of
from tests.simulation.server import Change
from tests.simulation.views import disagreement
from tests.simulation.world import World

MODULES: Final = {kind.name: kind.module("wiring") for kind in kinds.KINDS}
OPTIONAL: Final = {DISRUPTION_BUDGETS: BUDGET_CACHE, MIGRATIONS: MIGRATION_CACHE}
CACHES: Final = merged_caches([*(each.CACHES for each in MODULES.values()), OPTIONAL])
SETTLED_S: Final = 15.0
"""The history is judged if the template is this old, in seconds."""

QUIET_S: Final = 45.0
"""A set or pool waits if none of its objects has changed for this time in seconds."""


class Moment(Struct, frozen=True):
    """What is wrong at a moment, in words. A text is "" if nothing is wrong.

    `order` and `grouping`: how the plan or the status depends on them. `preview`: how the plugin's preview differs from
    the plan. `silence`: what waits without a word. `undo`: to which wrong template an undo would return. `refusal`: a
    refused write of which the status says nothing. `error`: the exception of a plan, a status or a view.

    `foretold` is what `plan` and `why` foretell. `views`: how two views differ.

    `features` are in force, if there are members. `waits` is what is not as the spec asks.
    """

    at: float
    owner: str
    foretold: tuple[Foretold, ...] = ()
    views: str = ""
    kind: str = ""
    features: tuple[str, ...] = ()
    waits: str = ""
    order: str = ""
    grouping: str = ""
    preview: str = ""
    silence: str = ""
    undo: str = ""
    refusal: str = ""
    oversleeps: str = ""
    error: str = ""


def moments_of(world: World) -> Iterator[Moment]:
    """Look at all sets and pools of the world."""
    for kind in kinds.KINDS:
        for key, owner in list(world.server._of(resource_of(_word(kind))).items()):
            if "deletionTimestamp" not in owner["metadata"]:
                try:
                    yield _look(world, kind, key, owner)
                except Exception as error:
                    where = traceback.extract_tb(error.__traceback__)[-1]
                    text = f"{error!r} in {where.name} of {where.filename.rsplit('/', 1)[-1]}"
                    yield Moment(world.loop.time(), key.name, error=text)


def _word(kind: Kind[Any]) -> str:
    return "pool" if kind is kinds.POOLS else "set"


class _Reader:
    """Takes snapshots of one set or pool, with the objects in a chosen order."""

    def __init__(self, world: World, kind: Kind[Any], key: ObjectKey) -> None:
        self._world, self._kind, self._key = world, kind, key
        self._resource = resource_of(_word(kind))
        self._config = world.replicas[0].config
        self._objects = {each: world.server.objects(each) for each in (*CACHES, self._resource)}

    def snapshot(self, order: Random | None = None) -> tuple[Any, Any]:
        """Return new rules and a snapshot of them."""
        module = MODULES[self._kind.name]
        is_on = {DISRUPTION_BUDGETS: self._config.disruption_budgets, MIGRATIONS: self._config.migrations}
        stores = {each: self._store(each, cache, order) for each, cache in CACHES.items() if is_on.get(each, True)}
        owners = self._store(self._resource, module.OWNER_CACHE, order)
        rollout = self._world.options.rollout
        settings = RolloutSettings(
            changes=rollout not in ("", STAGE),
            migrates=rollout in (LIVE_UPDATE, IMMOVABLE),
            judges=bool(rollout) and self._world.options.plugs,
        )
        extra = ((lambda: settings),) if self._kind is kinds.POOLS else ()
        rules = module.rules_of(self._config, self._resource, owners, stores, *extra)
        return rules, rules.take_snapshot(self._key, now=self._world.now(), settled=True)

    def _store(self, resource: AnyResource, cache: Cache, order: Random | None) -> Store[Any]:
        store: Store[Any] = Store(indexes=cache.indexes)
        objects = list(self._objects[resource])
        if order is not None:
            order.shuffle(objects)
        for each in objects:
            kept = cache.transform(each) if cache.transform else each
            if kept is not None:
                store.apply(kept)
        return store


def _look(world: World, kind: Kind[Any], key: ObjectKey, owner: Document) -> Moment:
    reader = _Reader(world, kind, key)
    rules, snapshot = reader.snapshot()
    said = _said(rules, snapshot)
    other_rules, shuffled = reader.snapshot(Random(str(world.loop.time())))
    name, noted = _word(kind), owner["metadata"].get("annotations") or {}
    alone = replace(snapshot, members=one_by_one(snapshot.members))
    plan, situation = rules.plan(snapshot), situation_of(kind, resource_of(name).group, snapshot)
    reasons = reasons_of(situation, None, world.now())
    return Moment(
        foretold=tuple(foretold_of(world.loop.time(), key.name, snapshot, plan)),
        views="" if world.options.takeover else disagreement(kind, rules, snapshot, situation, reasons),
        at=world.loop.time(),
        owner=key.name,
        kind=name,
        features=in_force(name, noted, budgets=world.options.budgets) if snapshot.members else (),
        waits=what_waits(owner),
        order=_difference(said, _said(other_rules, shuffled)),
        grouping=_difference(said, _said(rules, alone)),
        preview=_wrong_preview(snapshot, plan),
        silence=_silence(world, snapshot, owner, situation, reasons),
        undo=_wrong_undo(world, name, key, snapshot),
        refusal=_untold_refusal(world, key, owner, plan),
        oversleeps=_oversleeps(rules, snapshot, plan),
    )


LATER_S: Final = (1.0, 4.0, 12.0, 40.0, 120.0, 400.0, 1200.0)


def _oversleeps(rules: Any, snapshot: Any, plan: Plan) -> str:
    """A later plan writes something, if nothing but the time changes, and this plan does not ask for a pass by then."""
    if plan.actions:
        return ""
    for seconds in LATER_S:
        if plan.requeue_after_s is not None and seconds > plan.requeue_after_s:
            return ""
        at = snapshot.now + timedelta(seconds=seconds)
        later = rules.take_snapshot(snapshot.owner.metadata.key, now=at, settled=True)
        if actions := rules.plan(later).actions:
            written = [f"{label_of(type(each))} {each.resource.plural}/{each.key.name}" for each in actions]
            due = f"{written} after {seconds:.0f} s ({actions[0].why})"
            return f"{due}, and the plan asks for a pass after {plan.requeue_after_s} s"
    return ""


def preview_of_scale(world: World, kind: Kind[Any], key: ObjectKey, to: int) -> Foretold | None:
    """What `scale --dry-run` says about this set or pool."""
    rules, snapshot = _Reader(world, kind, key).snapshot()
    return foretold_scale(world.loop.time(), key.name, snapshot, rules.plan(snapshot), to)


def _said(rules: Any, snapshot: Any) -> dict[str, str]:
    """What the plan and the status say, in a form that can be compared."""
    plan: Plan = rules.plan(snapshot)
    actions = sorted(
        f"{label_of(type(each))} {each.resource.plural}/{each.key.name} {getattr(each, 'body', b'')!r}"
        for each in plan.actions
    )
    status = rules.next_status(snapshot, (), plan.waits)
    return {"actions": "\n".join(actions), "held": plan.held, "status": str(status)}


def _difference(one: dict[str, str], other: dict[str, str]) -> str:
    for part, text in one.items():
        if text != other[part]:
            return f"{part}: {_first_difference(text, other[part])}"
    return ""


def _first_difference(one: str, other: str) -> str:
    lines = [(a, b) for a, b in zip(one.split("\n"), other.split("\n"), strict=False) if a != b]
    return f"{lines[0][0][:300]!r} and {lines[0][1][:300]!r}" if lines else f"{one[-300:]!r} and {other[-300:]!r}"


def _wrong_preview(snapshot: Any, plan: Plan) -> str:
    """The preview of the present number of replicas names other VMs than the plan deletes for the scale-in."""
    shown = preview(snapshot)
    leaving = {each.name for each in shown.leaving}
    if not leaving or plan.held:
        return ""
    deleted = {each.key.name for each in plan.actions if isinstance(each, Delete)}
    is_surge = "maxSurge" in str(snapshot.owner.metadata.annotations) and deleted < leaving  # it leaves later
    if not deleted or is_surge or leaving <= deleted:
        return ""
    return f"the preview says that {', '.join(sorted(leaving - deleted))} leave, the plan deletes {sorted(deleted)}"


def _wrong_undo(world: World, name: str, key: ObjectKey, snapshot: Any) -> str:
    """An undo would return to another template than the one before the present one."""
    uid = snapshot.owner.metadata.uid
    images = images_of(world.server.changes, name, key.name)
    settled = images_of(world.server.changes, name, key.name, until=world.loop.time() - SETTLED_S)
    if settled[-1:] != images[-1:]:
        return ""
    right = _before(world.server.changes, name, key, uid)
    if not right or names.ROLLED_BACK in (snapshot.owner.metadata.annotations or {}) or snapshot.owner.spec.paused:
        return ""  # a pause stores no revision
    stored = [each for each in world.server._of(CONTROLLER_REVISIONS).values() if controller_uid(each) == uid]
    revisions = [CONTROLLER_REVISIONS.decode(msgspec.json.encode(each)) for each in stored]
    if name == "pool":
        history = history_of_pool(replace(snapshot, revisions=tuple(revisions)), counts=True)
    else:
        history = history_of_set(snapshot, revisions, counts=True)
    try:
        entry = previous_revision(history)
    except Refused:
        return ""  # it is told why there is nothing to return to
    image = image_in(name, template_in(entry)[FIELD[name]]["spec"])
    if image in right or any("controllerrevisions" in each.target for each in world.faults.all):
        return ""
    return f"the images were {', '.join(images[-6:])}, and an undo would return to {image}"


def _before(changes: list[Change], kind: str, key: ObjectKey, uid: str) -> set[str]:
    """The images to which an undo may return: the last one before the present one that a member got while it was in the
    spec, and those that were written later. A controller that sees nothing for a while does not know these. A pause
    stores no revision: what is written to a member meanwhile, such as an adoption, gives no template.
    """
    written: list[tuple[str, bool]] = []
    is_paused = False
    for change in changes:
        spec = (change.after or {}).get("spec") or {}
        if change.key == key and "selector" in spec and ("virtualMachineTemplate" in spec) == (kind == "pool"):
            wanted = spec["virtualMachineTemplate"]["spec"] if kind == "pool" else spec
            image, is_paused = image_of(wanted["template"]["spec"]), bool(spec.get("paused"))
            if not written or written[-1][0] != image:
                written.append((image, False))
        is_member = change.is_ours and change.resource in (VMS, VMIS) and controller_uid(change.last) == uid
        if not is_member or is_paused:
            continue
        image, before = (
            each and image_of(each["spec"].get("template", each)["spec"]) for each in (change.last, change.before)
        )
        if image == written[-1][0] != before:
            written[-1] = (written[-1][0], True)
    right = {written[-1][0]}
    for image, was_used in reversed(written[:-1]):
        right.add(image)
        if was_used and image != written[-1][0]:
            return right
    return set()


def _untold_refusal(world: World, key: ObjectKey, owner: Document, plan: Plan) -> str:
    """A write that the plan still has, and that has been refused again and again, without a word in the status."""
    # The Events tell of a standby that is missing: the pool has its wanted VMs.
    actions = (each for each in plan.actions if not (isinstance(each, Create) and mark_in(each.body)))
    wanted = {(each.resource.plural, each.key.name) for each in actions}
    now, told = world.loop.time(), str(owner.get("status") or {})
    lasting = [each for kind in ("refuse", "quota", "webhook") for each in world.faults.now(kind, now)]
    if not any(each.start < now - QUIET_S for each in lasting):
        return ""
    changes = (each for each in reversed(world.server.changes) if each.key == key)
    # After a write of a user, and after a return, the controller may want something else.
    written = next((each.at for each in changes if each.actor == "user" or _begins_return(each)), 0.0)
    tries: dict[tuple[str, str, str], list[float]] = {}
    for asked in world.server.asked:
        if asked.code == 403 and asked.subresource == "status" and asked.key == key and asked.at > now - QUIET_S:
            return ""  # the status is refused too
        if asked.at < written or asked.dry_run or asked.resource is EVENTS or asked.subresource == "status":
            continue
        what = (asked.verb, asked.resource.plural, asked.key.name)
        if asked.code in (403, 422) and asked.key.name.startswith(key.name):
            tries.setdefault(what, []).append(asked.at)
        elif asked.code < 300:
            tries.pop(what, None)
    for what, times in tries.items():
        is_lasting = times[0] < now - QUIET_S and times[-1] > now - 3 * QUIET_S and len(times) > 2
        if is_lasting and what[1:] in wanted and not any(word in told for word in REFUSED_WORDS):
            return f"{' '.join(what)} is refused since {times[0]:.0f} s, and the status says: {told[-250:]}"
    return ""


def _begins_return(change: Change) -> bool:
    before, after = (
        ((each or {}).get("metadata") or {}).get("annotations") or {} for each in (change.before, change.after)
    )
    return names.ROLLED_BACK in after and names.ROLLED_BACK not in before


REFUSED_WORDS: Final = (
    "denied by a policy",
    "failed calling webhook",  # a later answer to another write
    "exceeded quota",
    "forbidden",
    "denied the request",
    "would be refused",  # the status tells one of two refusals
    "conversion webhook failed",
)


# What waits


def _silence(world: World, snapshot: Any, owner: Document, situation: Situation, reasons: Iterable[Reason]) -> str:
    """What has waited for a while although status and `why` say nothing of it."""
    waits = what_waits(owner)
    if not waits or _changed_at(world, snapshot, owner) > world.loop.time() - QUIET_S:
        return ""
    status = owner.get("status") or {}
    told = [status.get("problem")] + [each.get("message") for each in status.get("conditions") or ()]
    if status.get("printableStatus") == "Stopped":
        return ""  # a user has stopped the VMs
    if not any(told):
        notes = {each for member in situation.members for each in member.note.split(", ")}
        marks = ", ".join(sorted({each.split(" ")[0] for each in notes if each})) or "none"
        return f"the status does not say why {waits}, with the marks {marks}: {status}"
    if situation.total == situation.wanted == situation.ready and situation.updated >= situation.target:
        return ""  # the status is old
    topics = {each.topic for each in reasons}
    return "" if topics & {"held", "cause", "wrong", "next"} else f"`why` does not say why {waits}"


def what_waits(owner: Document) -> str:
    """What of a set or pool is not as its spec asks, or "". Updates that users do by hand do not count."""
    spec, status = owner["spec"], owner.get("status") or {}
    if spec.get("paused") or status.get("observedGeneration") != owner["metadata"].get("generation"):
        return ""
    scale_in = spec.get("scaleInStrategy") or {"proactive": {}}
    template = spec.get("virtualMachineTemplate") or {"spec": {"runStrategy": "Always"}}
    always = template["spec"].get("runStrategy") == "Always"
    for field, words in (("replicas", "exist"), *((("readyReplicas", "are ready"),) if always else ())):
        count = status.get(field, 0)
        if count < spec["replicas"] or (count > spec["replicas"] and "proactive" in scale_in):
            return f"{count} of {spec['replicas']} {words}"
    annotations = owner["metadata"].get("annotations") or {}
    update = spec.get("updateStrategy") or {"proactive": {}}
    partition = annotations.get(names.PARTITION, "")
    if partition and ":" not in partition:
        return ""  # a user holds the update
    rolls = "proactive" in update if "virtualMachineTemplate" in spec else "vmherd.dev/rolling-update" in annotations
    if rolls and status.get("updatedReplicas", 0) < spec["replicas"]:
        return f"{status.get('updatedReplicas', 0)} of {spec['replicas']} are updated"
    return ""


def _changed_at(world: World, snapshot: Any, owner: Document) -> float:
    """When the set or pool, or one of its members, last changed."""
    uids = {owner["metadata"]["uid"], *(each.metadata.uid for each in snapshot.members)}
    names = {each.metadata.name for each in snapshot.members}

    def belongs(change: Change) -> bool:
        return change.last["metadata"]["uid"] in uids or (change.key.name in names and change.resource in CACHES)

    return next((each.at for each in reversed(world.server.changes) if belongs(each)), 0.0)
