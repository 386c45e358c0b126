"""This module draws the demo's tables from the cells that the API server makes for `kubectl get`. It is pure."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from msgspec import Struct
from rich.console import Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from controller.kinds import KINDS
from controller.kubevirt.resources import VMS

MAX_EVENTS = 10
FEW_EVENTS = 2
FRAME_LINES = 2
WIDE = 100
"""The width of a terminal in which Events have a column for the reason."""

OWNER_COLUMNS = ("Desired", "Current", "Ready", "Updated", "Status", "Problem")
"""The printer columns that the CRDs of the owners should have. If a CRD has none of these, its cells stay empty."""

READY_COLUMN = 2
UID_LENGTH = 8
Line: TypeAlias = Sequence[str | Text]

REVISION = "kubevirt.io/vm-pool-revision-name"


class Row(Struct, frozen=True):
    cells: Mapping[str, str]
    meta: Mapping[str, Any]

    @property
    def name(self) -> str:
        return str(self.meta["name"])

    @property
    def is_terminating(self) -> bool:
        return "deletionTimestamp" in self.meta

    @property
    def controller(self) -> str:
        return next(
            (str(each["kind"]) for each in self.meta.get("ownerReferences") or () if each.get("controller")), ""
        )

    @property
    def revision(self) -> str:
        return str((self.meta.get("labels") or {}).get(REVISION, ""))

    def state(self, column: str) -> str:
        return "Terminating" if self.is_terminating else self.cells[column]


def rows_of(table: Mapping[str, Any]) -> tuple[Row, ...]:
    columns = [each["name"] for each in table["columnDefinitions"]]
    return tuple(
        Row(
            {name: "" if cell is None else str(cell) for name, cell in zip(columns, row["cells"], strict=True)},
            row["object"]["metadata"],
        )
        for row in table["rows"]
    )


class View(Struct, frozen=True, kw_only=True):
    """All objects of the screen, the `owners` by kubectl's short name of the kind, or the `error` of their read."""

    owners: Mapping[str, tuple[Row, ...]] = {}
    vms: tuple[Row, ...] = ()
    vmis: tuple[Row, ...] = ()
    events: tuple[Row, ...] = ()
    error: str = ""

    @property
    def own_vmis(self) -> list[Row]:
        return [each for each in self.vmis if each.controller != VMS.kind]


def draw(view: View, *, width: int, height: int) -> RenderableType:
    """Draw all tables in at most `height` lines. Rows that do not fit are left out, ready VMs and VMIs first."""
    if view.error:
        return Text(f"no answer from the API server: {view.error}", style="yellow")
    owners, vms, vmis, events = _owners(view), _vms(view), _vmis(view), _events(view)
    free = height - 4 * FRAME_LINES + 1 - len(owners)
    room = max(free - min(len(events), max(FEW_EVENTS, free // 5)), 0)
    # Each of both tables gets half of the lines, and those that the other one does not need.
    of_vms = min(len(vms), max(room - room // 2, room - len(vmis)))
    of_vmis = min(len(vmis), room - of_vms)
    shown = min(len(events), MAX_EVENTS, max(free - of_vms - of_vmis, 0))
    return Group(
        _table(("OBJECT", "DESIRED", "CURRENT", "READY", "UPDATED", "STATUS"), owners),
        Text(),
        _table(("VMI", "PHASE", "READY", "NODE", "IP"), vmis, of_vmis),
        Text(),
        _table(("VM", "STATUS", "READY", "REVISION", "VMI", "UID"), vms, of_vms),
        Text(),
        _event_table(events[len(events) - shown :], width),
    )


def _owners(view: View) -> list[Line]:
    rows: list[Line] = []
    for short, each in ((short, each) for short, owners in view.owners.items() for each in owners):
        desired, current, ready, updated, status, problem = (each.cells.get(column, "") for column in OWNER_COLUMNS)
        state = _coloured(status, good="Running").append(f" {problem}".rstrip(), style="red")
        rows.append((f"{short}/{each.name}", desired, current, _coloured(ready, good=desired), updated, state))
    return rows


def _vmis(view: View) -> list[Line]:
    in_order = sorted(view.own_vmis, key=lambda vmi: (vmi.meta["creationTimestamp"], vmi.name))
    return [
        (each.name, each.state("Phase"), _readiness(each), each.cells["NodeName"], each.cells["IP"])
        for each in in_order
    ]


def _vms(view: View) -> list[Line]:
    rows: list[Line] = []
    vmis = {vmi.name: vmi for vmi in view.vmis}
    for vm in sorted(view.vms, key=_place_of):
        name = Text(vm.name).append("" if vm.controller else " (detached)", style="dim")
        vmi = vmis.get(vm.name)
        phase, uid = vmi.cells["Phase"] if vmi is not None else "", vm.meta["uid"][:UID_LENGTH]
        rows.append(
            (name, _coloured(vm.state("Status"), good="Running"), _readiness(vm), _revision(vm, vmi), phase, uid)
        )
    return rows


def _place_of(vm: Row) -> tuple[str, int]:
    stem, _, ordinal = vm.name.rpartition("-")
    return (stem, int(ordinal)) if ordinal.isdecimal() else (vm.name, 0)


def _revision(vm: Row, vmi: Row | None) -> Text:
    behind = f" (VMI: {_short(vmi.revision)})" if vmi is not None and vmi.revision != vm.revision else ""
    return Text(_short(vm.revision)).append(behind, style="yellow")


def _short(revision: str) -> str:
    """Return the number of a revision, as `kubectl vmherd tree` does. A name without a number stays."""
    number = revision.rpartition("-")[2]
    return number if number.isdecimal() else revision


def _readiness(subject: Row) -> Text:
    is_ready = not subject.is_terminating and subject.cells["Ready"] == "True"
    return _coloured(str(is_ready), good="True")


def _coloured(word: str, *, good: str) -> Text:
    return Text(word, style="green" if word == good else "yellow")


def _events(view: View) -> list[Line]:
    """Return the rows for the Events of objects that vmherd reconciles. The latest Event is the last row."""
    shorts = {kind.kind.lower(): kind.short_names[0] for kind in KINDS}
    rows: list[Line] = []
    for event in sorted(view.events, key=lambda event: int(event.meta["resourceVersion"])):
        cells, (kind, _, name) = event.cells, event.cells["Object"].partition("/")
        if kind in shorts:
            style, count = "red" if cells["Type"] == "Warning" else "", int(cells["Count"] or 1)
            age = cells["Last Seen"] + (f" x{count}" if count > 1 else "")
            texts = (Text(cells[column], style=style) for column in ("Reason", "Message"))
            rows.append((age, f"{shorts[kind]}/{name}", *texts))
    return rows


def _event_table(rows: Sequence[Line], width: int) -> Table:
    if width >= WIDE:
        return _table(("AGE", "OBJECT", "EVENT", "MESSAGE"), rows)
    return _table(("AGE", "OBJECT", "EVENT"), [(when, subject, message) for when, subject, _, message in rows])


def _table(headers: Sequence[str], rows: Sequence[Line], max_rows: int | None = None) -> Table:
    """Draw a table with one line for each row. The last of `max_rows` rows shows the number of rows left out."""
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


def _most_telling(rows: Sequence[Line], number: int) -> list[Line]:
    """Return this number of rows in their order. Rows of VMs and VMIs that are not ready come before other rows."""
    places = sorted(range(len(rows)), key=lambda place: (str(rows[place][READY_COLUMN]) == "True", place))
    return [rows[place] for place in sorted(places[: max(number, 0)])]
