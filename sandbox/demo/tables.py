"""This module draws the demo's tables from JSON objects of the API server. All functions of this module are pure."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, TypeAlias

from msgspec import Struct
from rich.console import Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from controller.kinds import KINDS, Kind
from sandbox.demo.status import (
    controller_of,
    is_ready,
    is_terminating,
    name_of,
    number_of_revision,
    place_of,
    revision_of,
    status_of,
    uid_of,
)

MAX_EVENTS = 10
FEW_EVENTS = 2
FRAME_LINES = 2
"""The number of lines of a table without its rows: the header and an empty line."""

WIDE = 100
"""The width of a terminal in which Events have a column for the reason."""

READY_COLUMN = 2
UID_LENGTH = 8
Row: TypeAlias = Sequence[str | Text]

MINUTE_S, HOUR_S = 60, 3600


class View(Struct, frozen=True, kw_only=True):
    """All objects that the demo shows, as JSON objects.

    If the objects cannot be read, `error` contains the reason. Otherwise `error` is empty.
    """

    owners: tuple[dict[str, Any], ...] = ()
    """The objects of all kinds that vmherd reconciles, such as replica sets and pools."""

    vms: tuple[dict[str, Any], ...] = ()
    vmis: tuple[dict[str, Any], ...] = ()
    events: tuple[dict[str, Any], ...] = ()
    error: str = ""

    def of(self, kind: Kind[Any]) -> tuple[dict[str, Any], ...]:
        return tuple(owner for owner in self.owners if owner["kind"] == kind.kind)


def draw(view: View, *, width: int, height: int, now: datetime) -> RenderableType:
    """Draw all tables in at most `height` lines. Rows that do not fit are left out, ready VMs and VMIs first.

    The ages of Events are their ages at `now`.
    """
    if view.error:
        return Text(f"no answer from the API server: {view.error}", style="yellow")
    vms, vmis, events = _vms(view), _vmis(view), _events(view, now)
    free = height - 4 * FRAME_LINES + 1 - len(view.owners)
    reserved = min(len(events), max(FEW_EVENTS, free // 5))
    rows = share(free - reserved, (len(vms), len(vmis)))
    shown = min(len(events), MAX_EVENTS, max(free - sum(rows), 0))
    return Group(
        _owners(view),
        Text(),
        _table(("VMI", "PHASE", "READY", "NODE", "IP"), vmis, rows[1]),
        Text(),
        _table(("VM", "STATUS", "READY", "REVISION", "VMI", "UID"), vms, rows[0]),
        Text(),
        _event_table(events[len(events) - shown :], width),
    )


def share(free: int, wanted: Sequence[int]) -> list[int]:
    """Return the number of lines for each table. `free` is the number of free lines for all tables.

    The lines are shared equally. `wanted` contains the maximum number of lines for each table.
    """
    given = [0] * len(wanted)
    while free > 0 and given != list(wanted):
        for index, limit in enumerate(wanted):
            if given[index] < limit and free > 0:
                given[index] += 1
                free -= 1
    return given


def _owners(view: View) -> Table:
    """Draw the table of the objects that own VMs or VMIs, with names that the user can pass to kubectl."""
    rows = [
        (f"{kind.short_names[0]}/{name_of(owner)}", *_counts(owner), _status_text(owner))
        for kind in KINDS
        for owner in view.of(kind)
    ]
    return _table(("OBJECT", "DESIRED", "CURRENT", "READY", "UPDATED", "STATUS"), rows)


def _counts(owner: dict[str, Any]) -> tuple[str | Text, ...]:
    """Return the values of the columns DESIRED, CURRENT, READY and UPDATED for a replica set or pool."""
    status = status_of(owner)
    desired, ready = owner["spec"].get("replicas", 1), status.get("readyReplicas", 0)
    return (
        str(desired),
        str(status.get("replicas", 0)),
        Text(str(ready), style="green" if ready == desired else "yellow"),
        str(status.get("updatedReplicas", 0)),
    )


def _status_text(owner: dict[str, Any]) -> Text:
    """Return the printableStatus, the conditions and the first problem of a replica set or pool.

    The condition Reconciling is left out, because the printableStatus says the same.
    """
    status = status_of(owner)
    word = status.get("printableStatus", "")
    text = Text(word, style="green" if word == "Running" else "yellow")
    for each in status.get("conditions") or ():
        if each["type"] != "Reconciling":
            text.append(f" {each['type']} ({each.get('reason', '')})", style="red")
    if problem := status.get("problem"):
        text.append(f" {problem}", style="red")
    return text


def _vmis(view: View) -> list[Row]:
    """Return the rows for all VMIs without a VM, for example the VMIs of a replica set."""
    rows: list[Row] = []
    own = [vmi for vmi in view.vmis if (controller_of(vmi) or {}).get("kind") != "VirtualMachine"]
    for vmi in sorted(own, key=lambda vmi: (vmi["metadata"]["creationTimestamp"], name_of(vmi))):
        status = status_of(vmi)
        addresses = [interface.get("ipAddress", "") for interface in status.get("interfaces") or ()]
        phase = "Terminating" if is_terminating(vmi) else status.get("phase", "Pending")
        rows.append((name_of(vmi), phase, _readiness(vmi), status.get("nodeName", ""), next(iter(addresses), "")))
    return rows


def _vms(view: View) -> list[Row]:
    rows: list[Row] = []
    vmis = {name_of(vmi): vmi for vmi in view.vmis}
    for vm in sorted(view.vms, key=place_of):
        name = Text(name_of(vm)).append(" (detached)" if controller_of(vm) is None else "", style="dim")
        vmi = vmis.get(name_of(vm))
        phase = status_of(vmi).get("phase", "Pending") if vmi is not None else ""
        rows.append((name, _vm_status(vm), _readiness(vm), _revision(vm, vmi), phase, uid_of(vm)[:UID_LENGTH]))
    return rows


def _vm_status(vm: dict[str, Any]) -> Text:
    word = "Terminating" if is_terminating(vm) else status_of(vm).get("printableStatus", "")
    return Text(word, style="" if word == "Running" else "yellow")


def _revision(vm: dict[str, Any], vmi: dict[str, Any] | None) -> Text:
    """Return the revision of the VM, and also the revision of the VMI if the two revisions differ."""
    behind = f" (VMI: {_short(revision_of(vmi))})" if vmi is not None and revision_of(vmi) != revision_of(vm) else ""
    return Text(_short(revision_of(vm))).append(behind, style="yellow")


def _short(revision: str) -> str:
    """Return the number of a revision, as `kubectl vmherd tree` does. A name without a number stays."""
    return str(number_of_revision(revision) or revision)


def _readiness(subject: dict[str, Any]) -> Text:
    return Text("True", style="green") if is_ready(subject) else Text("False", style="yellow")


def _events(view: View, now: datetime) -> list[Row]:
    """Return the rows for the Events of objects that vmherd reconciles. The latest Event is the last row."""
    shorts = {kind.kind: kind.short_names[0] for kind in KINDS}
    ours = [event for event in view.events if event["involvedObject"].get("kind") in shorts]
    rows: list[Row] = []
    for event in sorted(ours, key=_order_of):
        involved, style = event["involvedObject"], "red" if event.get("type") == "Warning" else ""
        count = int(event.get("count") or 1)
        rows.append(
            (
                age(_time_of(event), now) + (f" x{count}" if count > 1 else ""),
                f"{shorts[involved['kind']]}/{involved.get('name', '')}",
                Text(event.get("reason", ""), style=style),
                Text(event.get("message", ""), style=style),
            )
        )
    return rows


def _order_of(event: dict[str, Any]) -> tuple[str, int]:
    """Return the sort key of an Event. The times of Events are whole seconds, so the resource version decides too."""
    version = str(event["metadata"].get("resourceVersion", ""))
    return _time_of(event), int(version) if version.isdecimal() else 0


def _time_of(event: dict[str, Any]) -> str:
    return str(event.get("lastTimestamp") or event.get("eventTime") or "")


def age(then: str, now: datetime) -> str:
    """Return the time since a timestamp of the API server in one unit, such as `12s`, or "" if there is no time."""
    if not then:
        return ""
    seconds = max(int((now - datetime.fromisoformat(then)).total_seconds()), 0)
    if seconds < MINUTE_S:
        return f"{seconds}s"
    return f"{seconds // MINUTE_S}m" if seconds < HOUR_S else f"{seconds // HOUR_S}h"


def _event_table(rows: Sequence[Row], width: int) -> Table:
    """Draw the Events. In a narrow terminal, the reason is left out, because the message says more."""
    if width >= WIDE:
        return _table(("AGE", "OBJECT", "EVENT", "MESSAGE"), rows)
    return _table(("AGE", "OBJECT", "EVENT"), [(when, subject, message) for when, subject, _, message in rows])


def _table(headers: Sequence[str], rows: Sequence[Row], max_rows: int | None = None) -> Table:
    """Draw a table of at most `max_rows` rows. Each row needs only one line, even in a narrow terminal.

    If rows are left out, the last row shows their number.
    """
    columns = [Column(header, no_wrap=True) for header in headers]
    columns[-1].ratio = 1
    table = Table(*columns, box=None, show_edge=False, expand=True, pad_edge=False, padding=(0, 2, 0, 0))
    fits = max_rows is None or len(rows) <= max_rows
    shown = rows if fits else _most_telling(rows, (max_rows or 0) - 1)
    for row in shown:
        table.add_row(*row)
    if len(shown) < len(rows) and max_rows:
        table.add_row(f"and {len(rows) - len(shown)} more")
    return table


def _most_telling(rows: Sequence[Row], number: int) -> list[Row]:
    """Return this number of rows in their order. Rows of VMs and VMIs that are not ready come before other rows."""
    places = sorted(range(len(rows)), key=lambda place: (str(rows[place][READY_COLUMN]) == "True", place))
    return [rows[place] for place in sorted(places[: max(number, 0)])]
