"""The rows of `list` and `tree`."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct

from plugin.views.situation import Member, Situation
from plugin.views.tables import age, table

UPDATING = "Updating"


class Row(Struct, frozen=True, kw_only=True, rename="camel"):
    name: str
    namespace: str
    status: str
    desired: int
    current: int
    updated: int
    ready: int
    revision: str
    created: datetime | None
    problem: str


def row_of(situation: Situation) -> Row:
    return Row(
        name=situation.identity.path,
        namespace=situation.identity.namespace,
        status=situation.word,
        desired=situation.wanted,
        current=situation.total,
        updated=situation.updated,
        ready=situation.ready,
        revision=situation.revisions,
        created=situation.created,
        problem=situation.problem,
    )


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
    situations: Iterable[Situation], now: datetime, *, all_namespaces: bool, wide: bool, width: int = 0
) -> list[str]:
    """With `all_namespaces`, there is a column for the namespace, and with `wide`, one for the revision."""
    headers = ["NAME", "STATUS", "READY", "UPDATED", "AGE"]
    rows = []
    for each in situations:
        name = f"{each.identity.short}/{each.identity.name}"
        cells = [name, each.word, f"{each.ready}/{each.wanted}", str(each.updated), age(each.created, now)]
        before = [each.identity.namespace] if all_namespaces else []
        rows.append([*before, *cells, *([each.revisions] if wide else []), each.problem])
    before = ["NAMESPACE"] if all_namespaces else []
    return table([*before, *headers, *(["REVISION"] if wide else []), "PROBLEM"], rows, width=width)


def tree_lines(
    situation: Situation, members: Sequence[Member], now: datetime, *, all_namespaces: bool = False, width: int = 0
) -> list[str]:
    """Return a row for the object, and one for each of these members. The last column says why it is not well."""
    this = situation.identity
    status = situation.word
    if status == UPDATING:
        status = f"{status} {situation.updated}/{situation.target}"
    ready = f"{situation.ready}/{situation.wanted}"
    root = (
        f"{this.short}/{this.name}",
        situation.revisions,
        status,
        ready,
        "",
        age(situation.created, now),
        reason_of(situation)
        or "; ".join(f"{type_}: {text}" for type_, text in situation.failures.items())
        or situation.stops,
    )
    rows: list[tuple[str, ...]] = [root]
    for number, member in enumerate(members, start=1):
        branch = "`-" if number == len(members) else "|-"
        name, why = f"{branch} {member.kind}/{member.name}", why_of_member(situation, member)
        state = (member.revision, member.status, str(member.is_ready), member.node, age(member.created, now))
        rows.append((name, *state, why))
    headers = ("NAME", "REV", "STATUS", "READY", "NODE", "AGE", "WHY")
    if all_namespaces:
        return table(("NAMESPACE", *headers), [(this.namespace, *row) for row in rows], width=width, wraps=True)
    return table(headers, rows, width=width, wraps=True)


def reason_of(situation: Situation) -> str:
    """Return why the object as a whole does not progress, or ""."""
    invalid = situation.invalid and f"invalid: {situation.invalid}"
    return situation.deletion or invalid or situation.stalled or situation.by_hand


def why_of_member(situation: Situation, member: Member) -> str:
    """Return why the member is not ready or not up to date. The text ends with the member's note."""
    stopped = f"stopped by {member.stopped}" if member.stopped else ""
    texts = [member.problem, stopped, f"finalizers: {', '.join(member.finalizers)}" if member.finalizers else ""]
    if not member.is_updated and not member.is_deleting and situation.revision:
        if member.revision == situation.revision and member.running_revision:
            texts.append(f"VMI on revision {member.running_revision}")
        # An update may have to wait for the updated members that are not ready.
        updated = (each for each in situation.members if each.is_updated and not each.is_ready)
        blockers = [each.name for each in updated if each.problem]
        if blockers and member.name not in blockers:
            texts.append(f"waits for {listed(blockers)}")
    texts.append(member.note)
    return ", ".join(text for text in texts if text)


def listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
