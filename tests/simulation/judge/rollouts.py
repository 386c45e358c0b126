"""Sentences about templates: which are rolled back, how quickly, and in which steps."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from controller.kubevirt import annotations as names
from controller.kubevirt.resources import CONTROLLER_REVISIONS, MIGRATIONS, VMIS, VMS
from informers.meta import ObjectKey
from tests.fakes.requests import Document
from tests.simulation.guests import GOOD
from tests.simulation.judge.counts import FINAL
from tests.simulation.judge.replay import State, annotations, is_leaving, name_of, owner_by_name, replay
from tests.simulation.judge.sentence import Found, sentence
from tests.simulation.kubevirt import image_of
from tests.simulation.life import Life
from tests.simulation.objects import controller_uid, is_beside, is_ready
from tests.simulation.server import Change
from tests.simulation.story import BUSY_UNTIL_S
from tests.simulation.users import LAST_IMAGE
from tests.simulation.world import POOLS, SETS


@sentence
def one_vm_of_a_pool_migrates_at_a_time(life: Life) -> Iterator[Found | None]:
    """A pool starts a live migration only after its last one has ended."""
    running: dict[str, set[ObjectKey]] = {}
    for change in life.changes:
        if change.resource is not MIGRATIONS:
            continue
        others = running.setdefault(controller_uid(change.last), set()) - {change.key}
        if change.before is None:
            yield (change.at, owner_by_name(life, change.key.name), "two VMs migrate at a time") if others else None
        has_ended = change.after is None or (change.after.get("status") or {}).get("phase") is not None
        running[controller_uid(change.last)] = others if has_ended else others | {change.key}


@sentence
def a_vm_gets_a_template_once(life: Life) -> Iterator[Found | None]:
    """A VM that got its earlier template back does not get the same template again before its user acts, or before its
    VMI ends: then no restart is needed.
    """
    given: dict[str, set[str]] = {}
    for change in life.changes:
        if change.resource is POOLS and change.actor == "user":
            given.clear()
        if change.resource is VMIS and (
            is_leaving(change.last) or change.after is None or change.after.get("status", {}).get("phase") in FINAL
        ):
            given.pop(controller_uid(change.last), None)
        if change.resource is not VMS or not change.is_ours or change.before is None or change.after is None:
            continue
        was, now = (
            (each["metadata"].get("labels") or {}).get(names.REVISION_NAME) for each in (change.before, change.after)
        )
        had = given.setdefault(change.after["metadata"]["uid"], set())
        if now is not None and now != was:
            again = f"{change.key.name} gets {now} again" if now in had else ""
            yield (change.at, owner_by_name(life, change.key.name), again) if again else None
            had.add(now)


@sentence
def a_return_is_quick(life: Life) -> Iterator[Found | None]:
    """After a template is rolled back, no VM keeps it."""
    noted: dict[ObjectKey, tuple[float, str]] = {}
    for state, change in replay(life):
        if change.at > BUSY_UNTIL_S:
            return
        if change.resource in (POOLS, SETS):
            was, now = (names.ROLLED_BACK in annotations(each) for each in (change.before, change.after))
            if now and not was and change.after is not None:
                noted[change.key] = (change.at, image_of(_template(change.after)))
            elif change.actor == "user":
                noted.pop(change.key, None)
        for key, (since, image) in list(noted.items()):
            owner = state.get(POOLS, key) or state.get(SETS, key)
            if owner is not None and change.at - since > RETURN_S:
                del noted[key]
                yield None
                specs = {
                    name_of(each): each["spec"].get("template", {"spec": each["spec"]})["spec"]
                    for each in state.members(owner)
                    if names.PROTECT not in annotations(each)
                }
                late = sorted(name for name, spec in specs.items() if image_of(spec) == image)
                held = life.faults.overlap(since, change.at) or any(
                    since <= act.at <= change.at and (act.what in EVERYWHERE or key.name in act.args)
                    for act in life.story.acts
                )
                if late and not held:
                    grew = any("2Gi" in str(each) for each in state.members(owner) if name_of(each) in late)
                    text = f"{', '.join(late)} still have {image} {RETURN_S:.0f} s after the return"
                    yield change.at, key.name, f"{text}{', and larger disks' if grew else ''}"


RETURN_S: Final = 100.0


@sentence
def a_template_that_worked_stays(life: Life) -> Iterator[Found | None]:
    """The newest template with which all VMs were ready and stayed so is kept in the history, until most ready VMs have
    another one when a revision is written (R17).
    """
    worked: dict[str, str] = {}
    ready: dict[str, tuple[str, float]] = {}
    for state, change in replay(life):
        if change.resource in (POOLS, SETS) and change.after is not None:
            uid, image = change.last["metadata"]["uid"], image_of(_template(change.after))
            before, since = ready.get(uid, ("", change.at))
            if before in GOOD and change.at - since > WORKS_S:
                worked[uid] = before
            elif before and change.at - since > _min_ready_s(change.after):
                worked.pop(uid, None)  # this one or the one before it may be kept
            if _has_stopped_vm(state, uid) or _replaces_failure(state, uid):
                worked.pop(uid, None)  # all others may have worked with another template
            if not _all_are_ready(change.after):
                ready.pop(uid, None)
            elif image != before:
                ready[uid] = image, change.at
        if change.resource is not CONTROLLER_REVISIONS or not change.is_ours:
            continue
        if change.after is not None:
            uid = controller_uid(change.last)
            if worked.get(uid) not in _images_of_most_ready(state, state.owner_of(change.last)):
                worked.pop(uid, None)
            continue
        yield None
        uid, image = controller_uid(change.last), image_of(_template({"spec": change.last["data"]}))
        owner = state.owner_of(change.last)
        if owner is None or is_leaving(owner):
            continue
        others = [each for key, each in state.of(CONTROLLER_REVISIONS).items() if key != change.key]
        kept = {image_of(_template({"spec": each["data"]})) for each in others if controller_uid(each) == uid}
        if worked.get(uid) == image and image not in kept and not _is_about_to_work(life, uid, change.at):
            text = f"{change.key.name} with {image}, the last image with which all VMs were ready, was deleted"
            yield change.at, owner_by_name(life, change.key.name), text


def _images_of_most_ready(state: State, owner: Document | None) -> set[str]:
    """The image that most ready VMIs of the owner have. There are several if no image has more than each other one."""
    keys = {ObjectKey(each["metadata"]["namespace"], name_of(each)) for each in state.members(owner)} if owner else ()
    vmis = filter(is_ready, (state.get(VMIS, key) for key in keys))
    # A VMI that was adopted counts with the template of that time, whose image it may not have.
    counts = Counter(image_of(each["spec"]) for each in vmis if each is not None and "-orphan-" not in name_of(each))
    return {image for image, count in counts.items() if count == max(counts.values())}


def _replaces_failure(state: State, uid: str) -> bool:
    """True if a VMI replaces one that failed early: it proves its template only after ten minutes (R4a)."""
    vmis = (each for each in state.of(VMIS).values() if controller_uid(each) == uid)
    return any(names.EARLY_FAILURES in annotations(each) for each in vmis)


def _has_stopped_vm(state: State, uid: str) -> bool:
    vms = (each for each in state.of(VMS).values() if controller_uid(each) == uid)
    return any(each["spec"].get("runStrategy") == "Halted" for each in vms)


def _is_about_to_work(life: Life, uid: str, at: float) -> bool:
    """True if a status of this moment says that all VMs are ready with the present template."""
    near = (each for each in life.changes if abs(each.at - at) < 1 and each.resource in (POOLS, SETS) and each.after)
    return any(each.last["metadata"]["uid"] == uid and _all_are_ready(each.last) for each in near)


def _min_ready_s(owner: Document) -> float:
    try:
        return float(annotations(owner).get(names.MIN_READY, "0"))
    except ValueError:
        return 0.0  # a wrong value


WORKS_S: Final = 65.0
"""A template with which all VMs have been ready for this time works."""


def _all_are_ready(owner: Document) -> bool:
    spec, status = owner["spec"], owner.get("status") or {}
    counts = [status.get(field) for field in ("replicas", "readyReplicas", "updatedReplicas")]
    is_observed = status.get("observedGeneration") == owner["metadata"]["generation"]
    return is_observed and counts == [spec["replicas"]] * 3 and spec["replicas"] > 0


ACCIDENTS: Final = (
    "accident",
    "delete_member",
    "delete_vmi",
    "delete_claim",
    "switch_vm",
    "pause_vm",
    "change_field",
    "change_disks",
    "detach",
    "relabel",
    "drift",
    "grace",
)
"""Acts after which a member may not be ready, although its template is good."""

EVERYWHERE: Final = ("lose_node", "return_node", "bad_second", "fault", "suspend")


def _may_fail(life: Life, owner: str, since: float, until: float) -> bool:
    """True if a member of this set or pool may not be ready for another reason than its template. KubeVirt may still be
    plugging a volume of the template before.
    """
    acts = [act for act in life.story.acts if since <= act.at <= until]
    own = any(act.what in ACCIDENTS and act.args[1] == owner for act in acts)
    own = own or any(act.what == "live_change" and since - PLUGS_S < act.at < until for act in life.story.acts)
    return own or any(act.what in EVERYWHERE for act in acts) or life.faults.overlap(since, until)


PLUGS_S: Final = 30.0


@sentence
def a_good_template_is_not_rolled_back(life: Life) -> Iterator[Found | None]:
    """A template whose guests come up is never rolled back."""
    for _, change in replay(life):
        if change.resource not in (POOLS, SETS) or not change.is_ours or change.after is None:
            continue
        if names.ROLLED_BACK in annotations(change.before) or names.ROLLED_BACK not in annotations(change.after):
            continue
        yield None
        template = _template(change.last)
        image = image_of(template)
        since = template_since(life, change)
        is_good = image in (*GOOD[:4], LAST_IMAGE)
        if (
            is_good
            and not _is_about_another_template(life, change)
            and not _may_fail(life, change.key.name, since, change.at)
        ):
            yield change.at, change.key.name, f"{image}, written at {since:.0f} s, was rolled back"


def _is_about_another_template(life: Life, noted: Change) -> bool:
    """True if the template had changed before the note, and we did not know: then we remove the note ourselves."""
    for each in life.changes:
        if each.at <= noted.at or (each.resource, each.key) != (noted.resource, noted.key):
            continue
        if each.after is None or _template(each.last) != _template(noted.last):
            return False
        if names.ROLLED_BACK not in annotations(each.after):
            return each.is_ours
    return False


def template_since(life: Life, until: Change) -> float:
    """When the present template of this set or pool was written first: VMIs of its first rollout may still exist."""
    template = _template(until.last)
    return next(
        each.at
        for each in life.changes
        if (each.resource, each.key) == (until.resource, until.key) and _template(each.last) == template
    )


def _template(owner: Document) -> Document:
    spec = owner["spec"]
    inner: Document = (
        spec["virtualMachineTemplate"]["spec"]["template"] if "virtualMachineTemplate" in spec else spec["template"]
    )
    found: Document = inner["spec"]
    return found


@sentence
def steps_are_not_skipped(life: Life) -> Iterator[Found | None]:
    """During the first pause of an update in steps, only the VMs of the first step get the new template."""
    begun: dict[ObjectKey, tuple[float, str]] = {}
    images: dict[ObjectKey, set[str]] = {}
    got: dict[tuple[ObjectKey, float], set[str]] = {}
    # Another leader, whose clock differs, may end the pause earlier.
    skew_s = sum(act.args[1] for act in life.story.acts if act.what == "fault" and act.args[0] == "clock")
    for state, change in replay(life):
        if change.at > BUSY_UNTIL_S:
            return
        if change.resource is POOLS and change.after is not None and change.actor == "user":
            image, had = image_of(_template(change.after)), images.setdefault(change.key, set())
            is_new = image not in had  # an older revision may have the same image
            had.add(image)
            begun = _note_update(begun, change)
            is_old = not is_new or not state.members(change.after)  # without VMs, nothing is updated
            if is_old and begun.get(change.key, (0.0, ""))[0] == change.at:
                del begun[change.key]
        if change.resource is not VMS or not change.is_ours or change.after is None:
            continue
        owner = state.owner_of(change.last)
        key = ObjectKey(change.key.namespace, name_of(owner)) if owner else change.key
        if owner is None or key not in begun or _has_drifted(life, key.name, change.at):
            continue
        yield None
        at, steps = begun[key]
        share, pause_s = first_step(steps)
        new = image_of(_template(owner))
        if image_of(_template_of_vm(change.after)) != new or image_of(_template_of_vm(change.before)) == new:
            continue  # a scale-in may delete the VMs with the old template first
        got.setdefault((key, at), set()).add(change.key.name)
        members = [*state.members(owner), *([change.after] if change.before is None else [])]
        members = [each for each in members if not is_beside(each)]  # a standby has no place among the steps
        named = [each for each in members if name_of(each) in got.get((key, at), ())]
        updated = [
            each for each in named if image_of(_template_of_vm(each)) == new
        ]  # a standby may have been made again
        most = -(-len(members) * (100 - share) // 100)
        if change.at - at < pause_s - skew_s and len(updated) > most + 1:
            yield (
                change.at,
                key.name,
                f"{len(updated)} of {len(members)} have {new} {change.at - at:.0f} s after {steps}",
            )


def _has_drifted(life: Life, owner: str, at: float) -> bool:
    """True if another program took VMs out of the pool, or the label of the selector from new VMs. They keep their
    ordinals, so new VMs are above the step.
    """
    if any(act.what in ("lose_node", "bad_second") and act.at <= at for act in life.story.acts):
        return True  # a substitute is new, so it is above the step
    loses_label = any(
        fault.kind == "strip" and fault.target == "app" and fault.start <= at for fault in life.faults.all
    )
    return loses_label or any(act.what == "drift" and act.args[1] == owner and act.at <= at for act in life.story.acts)


def _template_of_vm(vm: Document | None) -> Document:
    inner: Document = vm["spec"]["template"]["spec"] if vm is not None else {}
    return inner


def _note_update(begun: dict[ObjectKey, tuple[float, str]], change: Change) -> dict[ObjectKey, tuple[float, str]]:
    """Note when an update with steps began. Any other change of the steps, or a second template, ends the note."""
    steps = annotations(change.after).get(names.PARTITION, "")
    rest = {key: value for key, value in begun.items() if key != change.key}
    if change.before is None or change.after is None or not first_step(steps)[1]:
        return rest
    if annotations(change.before).get(names.PARTITION) != steps:
        return rest
    if image_of(_template(change.before)) != image_of(_template(change.after)):
        return {**rest, change.key: (change.at, steps)}
    return begun if _template(change.before) == _template(change.after) else rest


def first_step(steps: str) -> tuple[int, float]:
    """The percentage of VMs that keep their template in the first step, and its pause in seconds, or 0."""
    first, _, pause = steps.split(",", maxsplit=1)[0].partition(":")
    if not first.endswith("%") or not pause.endswith("s") or not pause[:-1].isdigit():
        return 0, 0.0
    return int(first[:-1]), float(pause[:-1])
