"""The rows of `list` and `tree`."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from controller.replicas.conditions import counted
from controller.replicas.history import Fact
from plugin.views.situation import Member, Situation
from plugin.views.tables import age, printable, table

UPDATING = "Updating"


def row_of(situation: Situation) -> dict[str, object]:
    """Return what `list_lines` shows, for programs."""
    return {
        "name": situation.identity.path,
        "namespace": situation.identity.namespace,
        "status": situation.word,
        "desired": situation.wanted,
        "target": situation.target,
        "current": situation.total,
        "updated": situation.updated,
        "ready": situation.ready,
        "revision": situation.revisions,
        "created": situation.created,
        "problem": situation.problem,
        "labels": situation.labels,
    }


def sorted_by(column: str | None, situations: Iterable[Situation]) -> list[Situation]:
    """Objects with a problem, those with the fewest ready members, and the newest ones come first."""
    keys: Mapping[str, Callable[[Situation], Any]] = {
        "name": lambda each: each.identity.name,
        "status": lambda each: each.word,
        "ready": lambda each: each.ready - each.wanted,
        "age": lambda each: -(each.created.timestamp() if each.created is not None else 0),
        "problem": lambda each: (not each.problem, each.problem),
    }
    in_order = sorted(situations, key=lambda each: (each.identity.namespace, each.identity.plural, each.identity.name))
    return sorted(in_order, key=keys[column]) if column else in_order


def list_lines(
    situations: Iterable[Situation],
    now: datetime,
    labels: Sequence[str],
    *,
    all_namespaces: bool,
    wide: bool,
    width: int = 0,
) -> list[str]:
    """With `all_namespaces`, there is a column for the namespace, and with `wide`, one for the revision."""
    names = [label.rpartition("/")[2].upper() for label in labels]
    headers = ["NAME", "STATUS", "READY", "UPDATED", "AGE", *(["REVISION"] if wide else []), *names, "PROBLEM"]
    rows = []
    for each in situations:
        name = each.identity.short_path
        cells = [name, each.word, f"{each.ready}/{each.wanted}", str(each.updated), age(each.created, now)]
        before = [each.identity.namespace] if all_namespaces else []
        values = [each.labels.get(label, "<none>") for label in labels]
        rows.append([*before, *cells, *([each.revisions] if wide else []), *values, each.problem])
    return table([*(["NAMESPACE"] if all_namespaces else []), *headers], rows, width=width)


def sick_first(situation: Situation, members: Iterable[Member]) -> list[Member]:
    """Return the sick members, then others with a reason, such as a wait or a mark, and then the rest. Claimed and
    standby VMs belong to the rest.
    """
    return sorted(members, key=lambda each: (not each.is_sick, bool(each.beside) or not why_of_member(situation, each)))


def tree_lines(
    situation: Situation,
    members: Iterable[Member],
    now: datetime,
    *,
    all_namespaces: bool = False,
    width: int = 0,
    most: int = 0,
) -> list[str]:
    """Return a row for the object, and one for each of these members. The last column says why it is not well. There is
    a column of restarts if those of a member are known.

    With more lines than `most`, members in the same state are one row: those that are well, and as few others as
    possible. The number 0 means no limit.
    """
    this, ordered = situation.identity, sick_first(situation, members)
    status = situation.word
    if status == UPDATING:
        status = f"{status} {situation.updated}/{situation.target}"
    ready, created = f"{situation.ready}/{situation.wanted}{situation.beside}", age(situation.created, now)
    counts = any(each.restarts is not None for each in ordered)
    first = (this.short_path, situation.revisions, status, ready, *([""] * counts), "", created, why_of(situation))
    named = ("NAME", "REV", "STATUS", "READY", *(["RESTARTS"] * counts), "NODE", "AGE", "WHY")
    headers, place = (("NAMESPACE", *named), [this.namespace]) if all_namespaces else (named, [])

    def lines(alone: int) -> list[str]:
        rows = [*(_row_of(situation, each, now, counts) for each in ordered[:alone])]
        rows += _folded(situation, ordered[alone:], counts)
        branches = [*["|- "] * (len(rows) - 1), "`- "]
        shown = [(f"{branch}{name}", *row) for branch, (name, *row) in zip(branches, rows, strict=False)]
        return table(headers, [(*place, *row) for row in (first, *shown)], width=width, wraps=True)

    if not most or (len(ordered) < most and len(lines(len(ordered))) <= most):
        return lines(len(ordered))
    alone = sum(each.is_sick or bool(why_of_member(situation, each)) for each in ordered[:most])
    while alone and len(lines(alone)) > most:
        alone -= 1
    return lines(alone)


def _row_of(situation: Situation, member: Member, now: datetime, counts: bool) -> tuple[str, ...]:
    restarts = ["-" if member.restarts is None else str(member.restarts)] * counts
    state = (member.revision, member.status, str(member.is_ready), *restarts, member.node, age(member.created, now))
    return (member.short_path, *state, why_of_member(situation, member))


def _folded(situation: Situation, members: Iterable[Member], counts: bool) -> Iterable[tuple[str, ...]]:
    """Return a row for the members of each state. A reason that not all of them have is left out."""
    states: dict[tuple[str, str, str], list[str]] = {}
    for each in members:
        state = (each.revision, each.status, str(each.is_ready))
        states.setdefault(state, []).append(why_of_member(situation, each))
    for state, reasons in states.items():
        reason = reasons[0] if len({*reasons}) == 1 else ""
        name = counted(len(reasons), situation.identity.member, f"{situation.identity.member}s")
        yield (name, *state, *([""] * counts), "", "", reason)


def tree_answer(situation: Situation, members: Sequence[Member]) -> Mapping[str, object]:
    """Return what `tree_lines` shows, for programs."""
    shown = [msgspec.to_builtins(each) | {"why": why_of_member(situation, each)} for each in members]
    return {**row_of(situation), "why": why_of(situation), "members": shown}


def fact_lines(facts: Iterable[Fact], now: datetime, *, width: int = 0) -> list[str]:
    """Return what happened, the newest first. AGE is that of the last time."""
    rows = [(age(each.until, now), each.reason, str(each.times), printable(each.text)) for each in newest_first(facts)]
    return table(("AGE", "REASON", "TIMES", "WHAT"), rows, width=width, wraps=True)


def newest_first(facts: Iterable[Fact]) -> list[Fact]:
    return sorted(facts, key=lambda each: each.until, reverse=True)


def why_of(situation: Situation) -> str:
    failures = "; ".join(f"{type_}: {text}" for type_, text in situation.failures.items())
    return (
        reason_of(situation) or situation.problem or situation.dated(situation.by_hand) or failures or situation.stops
    )


def reason_of(situation: Situation) -> str:
    """Return why the object as a whole does not progress, or ""."""
    invalid = situation.invalid and f"invalid: {situation.invalid}"
    return situation.deletion or invalid or situation.stalled


def why_of_member(situation: Situation, member: Member) -> str:
    """Return why the member is not ready or not up to date. The text ends with the member's note."""
    stopped = f"stopped by {member.stopped}" if member.stopped else ""
    texts = [member.problem, stopped, f"finalizers: {', '.join(member.finalizers)}" if member.finalizers else ""]
    if not member.is_updated and not member.is_deleting and situation.revision:
        if member.revision == situation.revision and member.running_revision:
            texts.append(f"VMI on revision {member.running_revision}")
        if situation.blockers and member.name not in situation.blockers and not member.beside:
            texts.append(f"waits for {listed(situation.blockers)}")
    texts.append(member.note)
    return ", ".join(text for text in texts if text)


def listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
