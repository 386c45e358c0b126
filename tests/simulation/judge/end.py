"""Sentences about the end: the work is finished, nothing of ours is left, and nothing is written at rest."""

from collections import Counter
from collections.abc import Iterator
from math import log2
from typing import Final

from controller.events.event import EVENTS
from controller.kubevirt import annotations as names
from controller.kubevirt.resources import CONTROLLER_REVISIONS, DISRUPTION_BUDGETS, MIGRATIONS, VMIS, VMS
from controller.leaderelection.lease import LEASES
from controller.runtime.actions import AnyResource
from informers.meta import ObjectKey
from tests.fakes.requests import Document
from tests.simulation.judge.counts import FINAL
from tests.simulation.judge.replay import DISTURBED_S, annotations, begins_to_leave, is_leaving, owner_by_name
from tests.simulation.judge.sentence import Found, sentence
from tests.simulation.life import CALM_S, Life, unfinished
from tests.simulation.objects import controller_uid, is_beside
from tests.simulation.server import Asked
from tests.simulation.story import BUSY_UNTIL_S
from tests.simulation.world import POOLS, SETS

WINDOW_S: Final = 60.0
MANY: Final = 25
"""So many equal writes in `WINDOW_S` seconds are a hot loop."""

NEW: Final = 8
"""So many more writes of the same kind may follow a user's change, because delays begin again."""

OLD: Final = ("missed", "stall", "stall-list", "stale")
"""Faults after which a cache may be old."""

CRASHES: Final = ("crash", "crash_at_step", "terminate")
FOLLOWING: Final = (EVENTS, POOLS, SETS, DISRUPTION_BUDGETS)
"""Events, the status and disruption budgets follow what happens."""


@sentence
def the_work_is_finished(life: Life) -> Iterator[Found | None]:
    """The work is finished in bounded time once the faults end."""
    yield None
    if life.rested_at is None and not _shares_disks(life) and not _releases_slowly(life):
        for text in unfinished(life.world) or ["something is written again and again"]:
            yield life.ended_at, text.split(" ")[1], text


def _releases_slowly(life: Life) -> bool:
    """True if another controller has changed so many labels that a release waits for ten minutes (R2)."""
    drifts = any(act.what == "drift" for act in life.story.acts)
    return drifts and any(names.RELEASED in annotations(each) for each in life.world.everywhere(POOLS).values())


def _shares_disks(life: Life) -> bool:
    return any(act.what == "create" and act.args[2]["shares_disks"] for act in life.story.acts)


@sentence
def at_rest_nothing_is_written(life: Life) -> Iterator[Found | None]:
    """At rest, there are no writes, and a restart of the controllers changes nothing.

    The facts of the time before may wait, so the history of each object is written once more, and so is an Event that
    was one too many.
    """
    if life.rested_at is None:
        return
    yield None
    told = set[tuple[AnyResource, ObjectKey]]()
    has_missed = any(act.what == "fault" and act.args[0] == "missed" for act in life.story.acts)
    gone = [each for each in life.changes if each.after is None and each.resource in (VMS, VMIS)]
    missed = {each.key for each in gone if life.faults.overlap(each.at, each.at, "missed")}
    others = [each.at for each in life.changes if each.at > life.rested_at and each.actor == "kubevirt"]
    begun = [life.restarted_at, *(act.at for act in life.story.acts if act.what in CRASHES)]
    for asked in life.asked:
        if asked.resource is LEASES or asked.at <= life.rested_at + CALM_S:
            continue
        if any(at <= asked.at < at + 1 for at in others):
            continue  # the guest of a VM that leaves may take two minutes to end
        if _is_history(asked) and asked.at <= life.restarted_at and (asked.resource, asked.key) not in told:
            told.add((asked.resource, asked.key))
            continue
        if asked.resource is EVENTS and asked.verb == "create" and asked.body["count"] > 1:
            continue  # the limit of Events held it back until now
        if (asked.resource is EVENTS or _is_history(asked)) and any(0 < asked.at - at < DISTURBED_S for at in begun):
            continue  # a new process may repeat an Event, and its fact
        if asked.resource is CONTROLLER_REVISIONS and has_missed:
            continue  # the next list shows that a VM with the revision is gone
        if asked.verb == "create" and asked.key in missed:
            return  # the next list shows that the member is gone, and its successor starts
        if names.RELEASED in _notes(asked):
            return  # ten minutes after the last release, one member follows
        if has_missed and asked.subresource == "status":
            continue  # a VM whose deletion the watch has not sent is told as one that does not end
        yield asked.at, owner_by_name(life, asked.key.name), f"{asked.verb} {asked.resource.plural}/{asked.key.name}"


def _is_history(asked: Asked) -> bool:
    """True if the request writes only the annotation `vmherd.dev/history`."""
    return _notes(asked) == {names.HISTORY}


def _notes(asked: Asked) -> set[str]:
    metadata = (asked.body.get("metadata") or {}) if isinstance(asked.body, dict) else {}
    return {*(metadata.get("annotations") or {})}


SUBRESOURCES: Final = ("restart", "pause", "unpause")
"""The requests to virt-api."""

SILENT_S: Final = 125.0
"""After so many seconds, a watch that has become silent is begun again. Until then, its cache is old."""

UNSEEN_S: Final = 0.5
"""A request may be on the way while another writer changes the object, for this time in seconds."""


@sentence
def each_write_changes_something(life: Life) -> Iterator[Found | None]:
    """No patch is sent that changes nothing, unless a policy removes what it sets, another writer has just changed the
    object, or the cache is old.
    """
    silent = [act.at for act in life.story.acts if act.what == "fault" and act.args[0] == "silent"]
    others: dict[tuple[str, str, str], list[float]] = {}
    gone = [(each.key.name, each.at) for each in life.changes if each.resource in (POOLS, SETS) and each.after is None]
    for change in life.changes:
        if not change.is_ours:
            others.setdefault((change.resource.plural, *change.key), []).append(change.at)
    for asked in life.asked:
        if asked.verb != "patch" or asked.code >= 300 or asked.dry_run or asked.resource is EVENTS:
            continue
        yield None
        near = [*others.get((asked.resource.plural, *asked.key), ())]
        near += [at for name, at in gone if asked.key.name.startswith(name)]
        is_late = any(asked.at - UNSEEN_S < at <= asked.at for at in near)
        is_late = is_late or any(asked.at - SILENT_S < at <= asked.at for at in silent)
        is_late = is_late or life.faults.overlap(asked.at - SILENT_S, asked.at, *OLD)
        if not asked.changed and not is_late and not life.faults.overlap(asked.at, asked.at, "strip"):
            text = f"patch {asked.resource.plural} {asked.key.name} {asked.subresource}"
            yield asked.at, owner_by_name(life, asked.key.name), f"{text} changed nothing"


@sentence
def each_write_names_its_object(life: Life) -> Iterator[Found | None]:
    """Each delete names the UID of its object, and each patch has a precondition. So no write meets another object, and
    no write overwrites what the controller has not seen.
    """
    for asked in life.asked:
        if asked.verb == "create" or asked.subresource in SUBRESOURCES or asked.resource in (EVENTS, LEASES):
            continue
        yield None
        if wrong := _without_precondition(asked):
            text = f"{asked.verb} {asked.resource.plural} {asked.key.name} {asked.subresource} {wrong}"
            yield asked.at, owner_by_name(life, asked.key.name), text


def _without_precondition(write: Asked) -> str:
    """Say how a write could hit another object, or a version that the controller has not seen."""
    if write.verb == "update":
        return "replaces the whole object"
    if write.verb == "delete":
        return "" if (write.body.get("preconditions") or {}).get("uid") else "names no UID"
    if isinstance(write.body, list):
        is_tested = any(step["op"] == "test" and step["path"] == "/metadata/uid" for step in write.body)
        return "" if is_tested else "tests no UID"
    fields = set(_leaves(write.body))
    own = all(each.startswith(names.PREFIX) or each in OWN for each in fields)
    return "" if "resourceVersion" in fields or ("uid" in fields and own) else "has no precondition"


OWN: Final = ("uid", names.REVISION_NAME, "revision")
"""With a UID, a patch may set labels and annotations of ours, and the number of a revision."""


def _leaves(document: Document) -> Iterator[str]:
    """The names of the fields that a patch sets."""
    for name, value in document.items():
        yield from _leaves(value) if isinstance(value, dict) else (name,)


@sentence
def a_refusal_is_not_hammered(life: Life) -> Iterator[Found | None]:
    """Under any lasting refusal or stripping, there is a bounded number of writes."""
    counts: Counter[tuple[str, str, str, str, int]] = Counter()
    yield from (None for each in life.asked if each.code == 403)
    of_users = (each for each in life.changes if each.actor == "user" and each.resource in (POOLS, SETS))
    changed = Counter((each.key.name, int(each.at / WINDOW_S)) for each in of_users)
    for asked in life.asked:
        if asked.resource is LEASES or asked.dry_run or (asked.code < 300 and asked.resource in FOLLOWING):
            continue
        if asked.code in (409, 429) or asked.code >= 500 or asked.key.name == "":
            continue
        # Each Event has a name of its own. The Events about one object count together.
        name = asked.key.name if asked.resource is not EVENTS else asked.body.get("involvedObject", {}).get("name", "")
        what = (asked.verb, asked.resource.plural, asked.subresource, name, int(asked.at / WINDOW_S))
        counts[what] += 1
        if counts[what] < MANY:
            continue
        owner = owner_by_name(life, name)
        acts = sum(owner in act.args for act in life.story.acts if int(act.at / WINDOW_S) == what[-1])
        if counts[what] == MANY + NEW * max(acts, changed[owner, what[-1]]):
            text = (
                f"{asked.verb} {asked.resource.plural} {name} {counts[what]} times in {WINDOW_S:.0f} s: {asked.message}"
            )
            yield asked.at, owner, text
    yield from _endless_creates(life)
    yield from _steady_refusals(life)
    most: dict[str, int] = {}
    made: Counter[tuple[str, bool, int]] = Counter()
    for change in life.changes:
        window = int(change.at / WINDOW_S)
        if change.resource in (POOLS, SETS):
            wanted = min(change.last["spec"]["replicas"], life.story.options.max_replicas)
            most[change.key.name] = max(most.get(change.key.name, 0), wanted)
            for is_standby in (True, False) if change.actor == "user" else ():
                made[change.key.name, is_standby, window] -= wanted  # a new template is for all
        if change.is_ours and change.before is None and change.resource in (VMS, VMIS):
            owner = (change.last["metadata"].get("ownerReferences") or [{"name": ""}])[0]["name"]
            row = owner, names.STANDBY_STATE in annotations(change.last), window  # standbys have a count of their own
            made[row] += 1
            # The limit is in memory, so it begins again with another leader.
            near = [act.what for act in life.story.acts if change.at - 2 * WINDOW_S < act.at < change.at]
            leaders = 1 + sum(each in (*CRASHES, "suspend") for each in near)
            # A policy may also take members that are old: they are no loss.
            if made[row] >= leaders * (2 * most.get(owner, 0) + MANY):
                text = f"{MANY} VMs more than wanted were created in {WINDOW_S:.0f} s"
                yield change.at, owner, text


def _steady_refusals(life: Life) -> Iterator[Found]:
    """A refused write is tried again more and more rarely."""
    tries: dict[tuple[str, str, str, str], list[float]] = {}
    for asked in life.asked:
        if asked.code != 403 or asked.dry_run or asked.resource in (EVENTS, LEASES):
            continue
        same = tries.setdefault((asked.verb, asked.resource.plural, asked.subresource, asked.key.name), [])
        same.append(asked.at)
        late = [at for at in same if at > same[0] + STEADY_S and at > asked.at - STEADY_S]
        owner = owner_by_name(life, asked.key.name)
        acts = [act for act in life.story.acts if late and asked.at - STEADY_S <= act.at <= asked.at]
        is_calm = not any(act.what in ("crash", "terminate", "suspend") or owner in act.args for act in acts)
        if len({int(at / SPREAD_S) for at in late}) >= STEADY and is_calm:
            text = f"{asked.verb} {asked.resource.plural} {asked.key.name} is still tried {STEADY} times in a minute"
            yield (
                asked.at,
                owner_by_name(life, asked.key.name),
                f"{text}, {asked.at - same[0]:.0f} s after the first refusal",
            )


STEADY_S: Final = 60.0
STEADY: Final = 8
FIRST_ROUND_S: Final = 10.0
SPREAD_S: Final = 5.0
"""In a minute after the first, tries in `STEADY` parts of so many seconds are no growing delay. A burst is allowed."""


def _endless_creates(life: Life) -> Iterator[Found]:
    """While another program changes our labels, a set or pool makes new members again and again. One that takes the
    place of a member that we delete does not count.
    """
    begun = {act.args[1]: act.at for act in reversed(life.story.acts) if act.what == "drift"}
    spans = [(start, BUSY_UNTIL_S, name) for name, start in begun.items()]
    spans += [(each.start, each.end, "") for each in life.faults.all if each.kind == "strip"]
    for start, end, name in spans:
        made, wanted = Counter[str](), dict[str, int]()
        for change in life.changes:
            if change.resource in (POOLS, SETS) and change.after is not None:
                wanted[change.key.name] = max(change.last["spec"]["replicas"], wanted.get(change.key.name, 0))
            if not (start < change.at < end and change.is_ours and change.resource in (VMS, VMIS)):
                continue
            owner = (change.last["metadata"].get("ownerReferences") or [{"name": ""}])[0]["name"]
            made[owner] -= begins_to_leave(change)
            if change.before is None:
                made[owner] += 1
                # As many as wanted follow in each round, and the delay between two rounds is doubled.
                rounds = 2 + int(log2((change.at - start) / FIRST_ROUND_S + 1))
                if made[owner] >= 30 + rounds * min(wanted.get(owner, 0), 40) and name in ("", owner):
                    yield (
                        change.at,
                        owner,
                        f"{made[owner]} members were made in {change.at - start:.0f} s while labels change",
                    )


@sentence
def nothing_of_ours_is_left(life: Life) -> Iterator[Found | None]:
    """Every mark, label, finalizer, budget and migration of ours ends."""
    if life.rested_at is None:
        return
    yield None
    owners = {
        each["metadata"]["uid"]: each for resource in (POOLS, SETS) for each in life.world.everywhere(resource).values()
    }
    made_by_users = {each.key.name for each in life.changes if each.before is None and each.actor == "user"}
    for resource in (VMS, VMIS):
        for name, member in life.world.everywhere(resource).items():
            vm = life.world.everywhere(VMS).get(name)
            is_of_vm = vm is not None and resource is VMIS and controller_uid(member) == vm["metadata"]["uid"]
            if vm is not None and is_of_vm and is_beside(vm):
                continue
            if name in made_by_users and vm is not None and not controller_uid(vm):
                continue  # a backup has the label, and no pool adopts the VM
            if resource is VMIS and member.get("status", {}).get("phase") in FINAL:
                continue  # it serves nothing, and the next VMI has no marks
            for text in _leftovers(member, owners):
                yield life.ended_at, owner_by_name(life, name), f"{resource.plural}/{name} {text}"
    for name, migration in life.world.everywhere(MIGRATIONS).items():
        yield life.ended_at, owner_by_name(life, name), f"the migration of {migration['spec']['vmiName']} is left"
    for name, budget in life.world.everywhere(DISRUPTION_BUDGETS).items():
        if controller_uid(budget) and controller_uid(budget) not in owners:
            yield life.ended_at, name, f"the budget {name} has no owner"


def _leftovers(member: Document, owners: dict[str, Document]) -> Iterator[str]:
    if names.DRAINING in annotations(member):
        yield f"still has {names.DRAINING}"
    owner = owners.get(controller_uid(member))
    labels = {**(member["metadata"].get("labels") or {})}
    inner = (member.get("spec") or {}).get("template") or {}
    labels |= inner.get("metadata", {}).get("labels") or {}
    if labels.get(names.IN_SERVICE) == "false" and not is_beside(member):
        yield "is still out of service"
    if names.POOL_FINALIZER in (member["metadata"].get("finalizers") or ()) and owner is None:
        yield "has left its pool and still has our finalizer"
    if is_leaving(member) and names.POOL_FINALIZER in (member["metadata"].get("finalizers") or ()):
        yield "is still being deleted, and our finalizer holds it"


@sentence
def the_status_is_true(life: Life) -> Iterator[Found | None]:
    """At rest, the status counts the members that exist."""
    for kind, resource in (("pool", POOLS), ("set", SETS)):
        for name, owner in life.world.everywhere(resource).items():
            yield None
            members = life.world.everywhere(VMS if kind == "pool" else VMIS).values()
            own = [each for each in members if controller_uid(each) == owner["metadata"]["uid"] and not is_beside(each)]
            if kind == "set":
                own = [each for each in own if not is_leaving(each) and each["status"].get("phase") not in FINAL]
            counted = (owner.get("status") or {}).get("replicas", 0)
            if counted != len(own):
                yield life.ended_at, name, f"the status counts {counted} members, and {len(own)} exist"


@sentence
def one_budget_covers_a_pod(life: Life) -> Iterator[Found | None]:
    """At most one budget of ours covers a Pod for long."""
    budgets = life.world.everywhere(DISRUPTION_BUDGETS)
    for name, vmi in life.world.everywhere(VMIS).items():
        labels = vmi["metadata"].get("labels") or {}
        covering = [
            each
            for each, budget in budgets.items()
            if budget["metadata"]["namespace"] == vmi["metadata"]["namespace"]
            and (wanted := budget["spec"].get("selector", {}).get("matchLabels") or {})
            and wanted.items() <= labels.items()
        ]
        yield from (None for _ in covering)
        if len(covering) > 1:
            yield life.ended_at, owner_by_name(life, name), f"{name} is covered by {', '.join(sorted(covering))}"


@sentence
def a_calm_status_says_nothing(life: Life) -> Iterator[Found | None]:
    """Nothing is said to wait that does not wait."""
    if life.rested_at is None:
        return
    for resource in (POOLS, SETS):
        for name, owner in life.world.everywhere(resource).items():
            yield None
            status = owner.get("status") or {}
            said = {each["type"]: each["status"] for each in status.get("conditions") or ()}
            said.pop("Available", None)
            calm = {"Progressing": "True"}
            told = [type_ for type_, value in said.items() if value != calm.get(type_, "False")]
            problem = status.get("problem") or ""
            is_wrong = problem.startswith(("annotation ", "an autoscaler "))  # the user's mistake lasts
            is_wrong |= " outdated, " in problem and status.get("updatedReplicas", 0) < status.get("replicas", 0)
            words = ("Running", "Stopped", None) if life.story.options.takeover else ("Running", "Stopped")
            if (problem and not is_wrong) or told or status.get("printableStatus") not in words:
                text = f"{status.get('printableStatus')}, {status.get('problem')}, {told}"
                yield life.ended_at, name, f"at rest the status says {text}"
