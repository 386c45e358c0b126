"""The answer of `why`: what the object has, what waits, what causes it, what comes next, and what a user can do."""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from shlex import quote

from msgspec import Struct

from controller.apimachinery.conditions import time_text
from controller.kubevirt.annotations import ADOPT_DISKS, PROTECT
from controller.kubevirt.busy import time_of
from controller.leaderelection.lease import SECOND_WRITER, Lease
from controller.pool.rollout.update import UPDATE_HELD
from controller.replicas.kstatus import Word
from controller.replicas.wrong_annotations import others_wrong, problem_of
from controller.runtime.actions import Plan
from controller.runtime.dry_run import dry_run_report
from controller.runtime.execute.deletes import is_full_quota
from controller.runtime.waits import Why
from informers.meta import annotations_of
from plugin.views.listing import listed, reason_of, why_of_member
from plugin.views.situation import PROTECTED, Member, Situation
from plugin.views.tables import age, printable, short, wrapped
from plugin.views.upcoming import Upcoming

LISTED = 3
CROWD = 3
"""The least number of members that make a node crowded. A smaller set or pool often has no other choice."""

FENCE = "kubectl taint nodes {} node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
"""The command after which KubeVirt starts the VMs of a lost node again. If the machine runs, it damages their disks."""

BESIDE = "vmherd runs too; it works on this API group only in mode takeover, and an upgrade in mode auto keeps the mode"
"""What a user does not expect if KubeVirt is installed after vmherd."""

LEADER_UNKNOWN = "not known here, because you may not read leases; so its settings are not known either"

COMMANDS = ("try", "fence")

USUAL_LEASE_S = 15

INDENT = 11


class Reason(Struct, frozen=True, kw_only=True, rename="camel"):
    topic: str
    text: str


class Leader(Struct, frozen=True, kw_only=True):
    """The lease. `since` is the time of its last renewal if no controller renews it, or "" if there is no lease."""

    is_alive: bool
    text: str
    name: str = "none"
    since: str = ""

    @property
    def warning(self) -> str:
        """The text that the status is old, or ""."""
        return f"no controller is at work since {self.since}: the status is of that time or older" if self.since else ""


def summary_of(situation: Situation, *, all_namespaces: bool = False) -> str:
    this = situation.identity
    where = f" in {this.namespace}" if all_namespaces else ""
    lost = sum(bool(each.lost_node) for each in situation.members)
    has = f"has {situation.total}{situation.beside}"
    counts = [f"wants {situation.wanted}", has, *([f"{lost} lost"] if lost else [])]
    counts.append(f"{situation.ready} ready")
    if situation.revision:
        counts.append(f"{situation.updated} on revision {situation.revision}")
    return f"{this.short_path}{where} {', '.join(counts)}."


def member_line(situation: Situation, member: Member) -> str:
    owner = situation.identity.short_path
    parts = [member.status, "ready" if member.is_ready else "not ready"]
    parts += [f"revision {member.revision}"] if member.revision else []
    parts += [f"on {member.node}"] if member.node else []
    why = why_of_member(situation, member)
    return f"{member.short_path} of {owner}: {', '.join(parts)}{f' ({why})' if why else ''}."


def is_well(situation: Situation, reasons: Iterable[Reason]) -> bool:
    """Return True if there is nothing to say about the object but the name of its controller."""
    is_ready = situation.ready >= situation.wanted and situation.updated >= situation.target
    return is_ready and not situation.problem and all(reason.topic in ("leader", "node") for reason in reasons)


def reasons_of(
    situation: Situation,
    leader: Leader | None,
    now: datetime,
    *,
    upcoming: Sequence[Upcoming] = (),
    other_writer: str = "",
    warned: Sequence[str] = (),
    flags: str = "",
) -> tuple[Reason, ...]:
    """Return the reasons, the most important one first. `leader` is None if the user may not read leases.

    `upcoming` is what vmherd does later. `other_writer` is the evidence that KubeVirt's own controller works on the
    object, or "". If KubeVirt's controller works on the object, vmherd does not. `warned` are the warnings of the API
    server about vmherd's writes. `flags` are the flags for the commands
    to try, such as ` -n shop`.
    """
    lines: list[tuple[str, str]] = []
    if other_writer:
        lines.append(("leader", f"not vmherd: {other_writer}"))
        lines += [("leader", BESIDE)] if leader is not None and leader.is_alive else []
    elif leader is not None and not leader.is_alive:
        lines.append(("leader", leader.text))
    lines += [("held", text) for text in _held(situation, plans=not other_writer)]
    lines += [("cause", text) for text in _causes(situation, now)]
    lines += [("wrong", text) for text in (*_wrong(situation), *map(printable, warned))]
    if situation.found and not _is_told(situation, lines):
        lines.append(("cause", situation.found))
    down = (each for each in situation.members if each.is_sick and not each.is_ready)
    starting = [each for each in down if not (each.is_deleting or each.stopped)]
    if starting and {topic for topic, _ in lines} <= {"leader"}:
        lines.append(("cause", f"{listed([each.name for each in starting])}: {starting[0].status}, not ready"))
    if not other_writer and (leader is None or not leader.since):
        lines += [("next", text) for text in _next(situation.plan, upcoming, now)]
    if not lines:
        lines += [("node", text) for text in _crowded(situation)]
    if (leader is None or leader.is_alive) and not other_writer:
        lines.append(("leader", leader.text if leader is not None else LEADER_UNKNOWN))
    lines += [
        ("fence", f"{FENCE.format(quote(each))}{flags}  # only if the machine is off")
        for each in _lost_nodes(situation)
    ]
    advice = dict.fromkeys(_advice(situation, keeps_templates=not other_writer))
    parts = (text.partition("  # ") for text in advice)
    lines += [("try", f"{command}{flags}{mark}{comment}") for command, mark, comment in parts]
    if situation.is_deleting and situation.finalizers and leader is not None and not leader.is_alive:
        # Without a controller, nothing removes its finalizers.
        lines.append(("try", f"kubectl vmherd cleanup --dry-run=client -n {situation.identity.namespace}"))
    return tuple(Reason(topic=topic, text=text) for topic, text in lines)


def _lost_nodes(situation: Situation) -> list[str]:
    return sorted({printable(each.lost_node) for each in situation.members if each.lost_node})[:LISTED]


def why_lines(
    situation: Situation, reasons: Iterable[Reason], *, all_namespaces: bool = False, width: int = 0
) -> list[str]:
    """If `width` is not 0, longer lines are broken between words, but no command to try: a user can copy it."""
    lines = [summary_of(situation, all_namespaces=all_namespaces)]
    for reason in reasons:
        texts = wrapped(reason.text, width - INDENT if width and reason.topic not in COMMANDS else 0)
        lines += [f"  {reason.topic if not number else '':<8} {text}" for number, text in enumerate(texts)]
    return lines


def leader_of(leases: Iterable[Lease], now: datetime) -> Leader:
    """Return the controller whose lease was renewed recently. If there is no such lease, say so."""
    dead = Leader(is_alive=False, text="no controller has a lease")
    for lease in leases:
        renewed = time_of(lease.record.renew_time or "")
        if renewed is None:
            continue
        passed = (now - renewed).total_seconds()
        place = f"lease {lease.metadata.key}"
        text = f"{lease.holder or 'has released it'} ({place}, renewed {short(passed)} ago)"
        other = annotations_of(lease.metadata).get(SECOND_WRITER, "")
        if lease.holder and passed <= 2 * (lease.record.lease_duration_seconds or USUAL_LEASE_S):
            text = f"{text}, and it is not alone: {printable(other)}" if other else text
            return Leader(is_alive=True, text=text, name=f"{lease.holder} ({place})")
        text = f"no controller renews the lease: the last one {'was ' if lease.holder else ''}{text}"
        dead = Leader(is_alive=False, text=text, since=time_text(renewed))
    return dead


def _held(situation: Situation, *, plans: bool) -> Iterable[str]:
    """Return what waits. `plans` is False if vmherd does not work on the object, so its plan holds nothing."""
    is_over = situation.is_deleting or bool(situation.invalid)
    by_hand = "" if is_over else situation.dated(situation.by_hand)
    yield from dict.fromkeys(filter(None, (reason_of(situation), by_hand)))
    if not plans or situation.invalid:
        return
    # The stall of a wait has its text.
    told = {situation.by_hand, situation.stall.message if situation.stall is not None else ""}
    waits = [each for each in situation.plan.waits if each.until is None and each.text not in told]
    if situation.is_deleting:
        waits = [each for each in waits if each.names]  # they hold the deletion
    if waits:
        limits = (_limit(situation) if each.why is Why.OTHERS else "" for each in waits)
        yield "; ".join(f"{situation.dated(each.text)}{limit}" for each, limit in zip(waits, limits, strict=True))


def _is_told(situation: Situation, lines: Iterable[tuple[str, str]]) -> bool:
    """Return True if other lines tell the problem that the status names first."""
    name, found = situation.found.partition(":")[0], situation.found
    named = {each.name for each in situation.members if each.problem or each.finalizers}
    return name in named or found == printable(problem_of(situation.wrong)) or any(found in text for _, text in lines)


def _limit(situation: Situation) -> str:
    """Return the number of unavailable members and the limit, for the end of a sentence."""
    most = situation.most_unavailable
    if most is None or not situation.unavailable:
        return ""
    bridged = situation.bridged > 0  # other VMs do the work of lost ones
    counted = (each for each in situation.members if not (each.is_deleting or each.beside))
    names = [each.name for each in counted if (each.drains or not each.is_ready) and not (bridged and each.lost_node)]
    by = f", by {listed(names)}" if names else ""
    percentage = f" (maxUnavailable {situation.percentage})" if situation.percentage else ""
    return f": {situation.unavailable} of {most} allowed are unavailable{percentage}{by}"


def _causes(situation: Situation, now: datetime) -> Iterable[str]:
    held = situation.stall.message if situation.stall is not None else ""
    yield from (f"{type_}: {text}" for type_, text in situation.failures.items() if text != held)
    broken = [each for each in situation.members if each.problem]
    for each in broken[:LISTED]:
        since = f" since {age(each.unready_since, now)}" if each.unready_since is not None else ""
        yield f"{each.name}: {each.status}{since} ({each.problem})"
    if len(broken) > LISTED:
        yield f"and {len(broken) - LISTED} more {situation.identity.member}s are not ready"
    leaving = [each for each in situation.members if each.finalizers]
    for each in leaving[:LISTED]:
        yield f"{each.name}: {each.status}, it waits for the finalizers {', '.join(each.finalizers)}"
    if len(leaving) > LISTED:
        yield f"and {len(leaving) - LISTED} more {situation.identity.member}s wait for finalizers"
    waiting = {name for each in situation.plan.waits if each.why is Why.PROTECTION for name in each.names}
    protected = [each.name for each in situation.members if each.name in waiting and each.note.startswith(PROTECTED)]
    if protected and not situation.is_deleting:
        yield f"{listed(protected)}: protected by {PROTECT}"


def _wrong(situation: Situation) -> Iterable[str]:
    """Return the wrong annotations, without one that `held` names already."""
    others = [each.text for each in situation.wrong if each.text != situation.by_hand]
    yield from map(printable, others[:LISTED])
    if len(others) > LISTED:
        yield others_wrong(len(others) - LISTED)


def _crowded(situation: Situation) -> Iterable[str]:
    """Yield a note if one node has most members. It tells what could go wrong, so what is wrong comes without it."""
    nodes = Counter(each.node for each in situation.members if each.node)
    for node, number in nodes.most_common(1):
        if number >= CROWD and number * 3 >= nodes.total() * 2:
            yield f"{node} has {number} of {nodes.total()} {situation.identity.member}s, and its loss takes them all"


def _next(plan: Plan, upcoming: Sequence[Upcoming], now: datetime) -> Iterable[str]:
    actions = dry_run_report(plan, status=False).actions
    yield from actions[:LISTED]
    if len(actions) > LISTED:
        yield f"and {len(actions) - LISTED} more writes"
    later = []
    for each in plan.waits:
        if each.until is not None:
            left = (each.until - now).total_seconds()
            later.append((left, each.text.replace(f"at {time_text(each.until)}", f"in {short(left)}")))
    later += [(float("inf") if each.seconds is None else each.seconds, each.text) for each in upcoming]
    yield from (text for _, text in sorted(later, key=lambda each: each[0]))


def _advice(situation: Situation, *, keeps_templates: bool) -> Iterable[str]:
    """Return the commands that a user can try. They do what the object's own texts ask for.

    `keeps_templates` is False behind KubeVirt's own controller, which keeps the templates of pools only.
    """
    this, by_name = situation.identity.short_path, {each.name: each for each in situation.members}
    if situation.is_deleting:
        return
    if situation.is_paused:
        yield f"kubectl vmherd rollout resume {this}"
        return
    broken = any(each.is_updated and each.problem for each in situation.members)
    # After an undo, a VM may be held on its way back. Another undo would hold the others.
    is_new = 2 * situation.updated < situation.target
    held = is_new and any(each.stall == UPDATE_HELD for each in situation.plan.waits)
    held = held or situation.word == Word.ROLLED_BACK
    can_return = keeps_templates or situation.identity.member == "VM"
    if can_return and situation.updated < situation.target and (broken or held) and not situation.by_hand:
        yield f"kubectl vmherd rollout undo {this}"
    if any(is_full_quota(each) for each in situation.failures.values()):
        yield "kubectl describe resourcequota"
    if any(f"{ADOPT_DISKS}=true" in each for each in situation.failures.values()):
        yield f"kubectl annotate {this} {ADOPT_DISKS}=true  # only if the pool may use the data on the disk"
    yield from (f"kubectl describe node {quote(each)}" for each in _lost_nodes(situation))
    for each in situation.plan.waits:
        first = by_name.get(each.names[0]) if each.names and each.needs_user else None
        if each.remedy:
            yield each.remedy.format(this=this)
        elif first is not None and first.remedy:
            yield first.remedy
        elif first is not None and first.stopped:
            yield f"virtctl start {first.name}"
