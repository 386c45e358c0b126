"""This module draws the demo's tables from JSON objects of the API server. All functions of this module are pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from msgspec import Struct
from rich import box
from rich.console import Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from controller.kinds import KINDS, Kind
from sandbox.demo_status import controller_of, is_ready, is_terminating, name_of, revision_of, status_of, uid_of

MAX_EVENTS = 10
"""The maximum number of Events that the demo shows."""

FRAME_LINES = 3
"""The number of lines of a table without its rows: the header, the line below the header, and an empty line."""

UID_LENGTH = 8
"""The number of characters of a UID that a table shows."""

Row: TypeAlias = Sequence[str | Text]


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


def draw(view: View, height: int) -> RenderableType:
    """Draw all tables for a terminal with `height` lines. Rows that do not fit into the terminal are left out."""
    if view.error:
        return Text(f"no answer from the API server: {view.error}", style="yellow")
    vms, vmis, events = _vms(view), _vmis(view), _events(view)
    free = height - 4 * FRAME_LINES - len(view.owners)
    rows = share(free, (len(vms), len(vmis), min(len(events), MAX_EVENTS)))
    return Group(
        _owners(view),
        Text(),
        _with_rows(_table("VMI", "PHASE", "READY", "NODE", "IP"), vmis, rows[1]),
        Text(),
        _with_rows(_table("VM", "STATUS", "READY", "REVISION", "VMI", "UID"), vms, rows[0]),
        Text(),
        _with_rows(_table("EVENT", "COUNT", "MESSAGE"), events[-rows[2] :], rows[2]),
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
    table = _table("OBJECT", "DESIRED", "CURRENT", "READY", "UPDATED", "STATUS")
    for kind in KINDS:
        for owner in view.of(kind):
            table.add_row(f"{kind.short_names[0]}/{name_of(owner)}", *_counts(owner), _status_text(owner))
    return table


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
    """Return the printableStatus and the conditions of a replica set or pool. A replica set has no printableStatus."""
    status = status_of(owner)
    word = status.get("printableStatus", "")
    text = Text(word, style="green" if word == "Running" else "yellow")
    for each in status.get("conditions") or ():
        text.append(f" {each['type']} ({each.get('reason', '')})", style="red")
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
    for vm in sorted(view.vms, key=_by_ordinal):
        name = Text(name_of(vm)).append(" (detached)" if controller_of(vm) is None else "", style="dim")
        vmi = vmis.get(name_of(vm))
        phase = status_of(vmi).get("phase", "Pending") if vmi is not None else ""
        rows.append((name, _vm_status(vm), _readiness(vm), _revision(vm, vmi), phase, uid_of(vm)[:UID_LENGTH]))
    return rows


def _by_ordinal(vm: dict[str, Any]) -> tuple[str, int]:
    """Return the sort key of a VM. The key sorts by number: pool-10 is after pool-9."""
    stem, _, ordinal = name_of(vm).rpartition("-")
    return (stem, int(ordinal)) if ordinal.isdecimal() else (name_of(vm), 0)


def _vm_status(vm: dict[str, Any]) -> Text:
    word = "Terminating" if is_terminating(vm) else status_of(vm).get("printableStatus", "")
    return Text(word, style="" if word == "Running" else "yellow")


def _revision(vm: dict[str, Any], vmi: dict[str, Any] | None) -> Text:
    """Return the revision of the VM, and also the revision of the VMI if the two revisions differ."""
    behind = f" (VMI: {revision_of(vmi)})" if vmi is not None and revision_of(vmi) != revision_of(vm) else ""
    return Text(revision_of(vm)).append(behind, style="yellow")


def _readiness(subject: dict[str, Any]) -> Text:
    return Text("True", style="green") if is_ready(subject) else Text("False", style="yellow")


def _events(view: View) -> list[Row]:
    """Return the rows for the Events of objects that vmherd reconciles. The latest Event is the last row."""
    kinds = {kind.kind for kind in KINDS}
    ours = [event for event in view.events if event["involvedObject"].get("kind") in kinds]
    return [
        (
            Text(event.get("reason", ""), style="red" if event.get("type") == "Warning" else ""),
            str(event.get("count", 1)),
            Text(event.get("message", "")),
        )
        for event in sorted(ours, key=lambda event: event.get("lastTimestamp") or "")
    ]


def _table(*headers: str) -> Table:
    """Create an empty table with these headers. Each row needs only one line, even in a narrow terminal."""
    columns = [Column(header, no_wrap=True) for header in headers]
    columns[-1].ratio = 1
    return Table(*columns, box=box.SIMPLE_HEAD, show_edge=False, expand=True, pad_edge=False)


def _with_rows(table: Table, rows: Sequence[Row], max_rows: int) -> Table:
    """Add at most `max_rows` rows to the table and return the table.

    If rows are left out, the last row shows their number.
    """
    shown = rows if len(rows) <= max_rows else rows[: max(max_rows - 1, 0)]
    for row in shown:
        table.add_row(*row)
    if len(shown) < len(rows) and max_rows:
        table.add_row(f"and {len(rows) - len(shown)} more")
    return table
