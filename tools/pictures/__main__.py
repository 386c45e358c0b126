"""`python -m tools.pictures` makes the pictures of the README from a real run, with steady names and ages."""

import io
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace
from rich.console import Console, Group, RenderableType
from rich.text import Text

from controller.config.types import seconds_in
from controller.kinds import POOLS
from plugin.views.tables import coloured_column, coloured_topic, table
from sandbox.binaries import BinariesUnavailable
from sandbox.controlplane import ControlPlaneError
from sandbox.demo.cluster import DemoFailed, running_cluster, until
from sandbox.demo.command import complete, output_of
from sandbox.demo.experiments import EXPERIMENTS, POOL, POOL_EXAMPLE, SET, SET_EXAMPLE, UPDATE, Command, apply_command
from sandbox.demo.hints import Report, draw_hints, joined
from sandbox.demo.tables import Row, View, draw
from tools import generated

HASH: Final = "bcdfghjklmnpqrstvwxz2456789"
NODES: Final = 5
ID: Final = "00000000-0000-0000-0000-000000000000"
EVENT_GAP_S: Final = 2

UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
HOLDER: Final = re.compile(rf"\S+_{UUID.pattern}")
DURATION: Final = re.compile(r"\b(since|in|renewed) ((?:\d+[dhms])+)\b")
TIME: Final = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
AGE: Final = "3m"
NAME: Final = attrgetter("name")


def clean_objects(view: View) -> View:
    names = {vmi.name: f"test{_hash(number)}" for number, vmi in enumerate(sorted(view.own_vmis, key=NAME))}
    vmis = [_placed(vmi, names, place) for place, vmi in enumerate(sorted(view.vmis, key=NAME))]
    vms = [_with_uid(vm, place) for place, vm in enumerate(sorted(view.vms, key=NAME))]
    latest_first = sorted(view.events, key=lambda event: int(event.meta["resourceVersion"]), reverse=True)
    events = [_aged(event, names, EVENT_GAP_S * place) for place, event in enumerate(latest_first, start=1)]
    return replace(view, vms=tuple(vms), vmis=tuple(vmis), events=tuple(events))


def clean_text(text: str) -> str:
    return TIME.sub("2026-01-01T00:05:00Z", DURATION.sub(_rounded, HOLDER.sub(f"demo_{ID}", text)))


def _rounded(found: re.Match[str]) -> str:
    word, duration = found[1], found[2]
    if word != "in":
        return f"{word} {'2s' if word == 'renewed' else '10s'}"
    seconds = seconds_in(duration) or 0
    return f"in {-(-int(seconds) // 60)}m" if seconds > 60 else "in 30s"


def clean_table(text: str) -> str:
    """Return the output of `tree` with fixed nodes and ages. The columns get the width of their cells again."""
    header, *lines = text.splitlines()
    starts = [found.start() for found in re.finditer(r"\S+", header)]
    ends = [*starts[1:], None]
    rows = [[line[start:end].strip() for start, end in zip(starts, ends, strict=True)] for line in (header, *lines)]
    change: Mapping[str, Callable[[int], str]] = {"AGE": lambda _: AGE, "NODE": _node}
    for column, title in enumerate(rows[0]):
        for number, row in enumerate(rows[1:]):
            if title in change and row[column]:
                row[column] = change[title](number)
    return "\n".join(table(rows[0], rows[1:])) + "\n"


def _hash(number: int) -> str:
    return "".join(HASH[(7 * number + 5 * place + 3) % len(HASH)] for place in range(5))


def _node(number: int) -> str:
    return f"node{number % NODES + 1:02}"


def _placed(vmi: Row, names: Mapping[str, str], place: int) -> Row:
    fixed = {"NodeName": _node(place), "IP": f"10.0.0.{place + 10}"}
    cells = {column: fixed.get(column, cell) if cell else "" for column, cell in vmi.cells.items()}
    return Row(cells, {**vmi.meta, "name": names.get(vmi.name, vmi.name), "creationTimestamp": ""})


def _with_uid(vm: Row, place: int) -> Row:
    digits = "".join(f"{(37 * place + 91 * part + 17) % 256:02x}" for part in range(4))
    return replace(vm, meta={**vm.meta, "uid": digits})


def _aged(event: Row, names: Mapping[str, str], age_s: int) -> Row:
    message = event.cells["Message"]
    for old, new in names.items():
        message = re.sub(rf"\b{old}\b", new, message)
    return replace(event, cells={**event.cells, "Message": message, "Last Seen": f"{age_s}s"})


WIDTH, HEIGHT = 104, 38
LAST: Final = EXPERIMENTS["4"]
COMMANDS: Final = (
    apply_command(SET_EXAMPLE, POOL_EXAMPLE),
    complete(SET),
    complete(POOL),
    UPDATE,
    complete(POOL),
    *LAST.commands,
)
STOPPED: Final = "ImagePullBackOff"
KUBECONFIG: Final = Path("/tmp/vmherd-demo/kubeconfig")


class Shots(Struct, frozen=True, kw_only=True):
    """What the terminal shows: a screen of the width WIDTH, and the output of two commands."""

    demo: RenderableType
    tree: Text
    why: Text


def take() -> Shots:
    """Run the demo and return what it shows. Raises BinariesUnavailable, ControlPlaneError or DemoFailed."""
    with running_cluster() as cluster:
        for command in COMMANDS:
            output_of(cluster, command)
        until(lambda: _has_stopped(cluster.view()), "the update has stopped at the bad image")
        header, *rows = clean_table(output_of(cluster, _command("tree"))).splitlines()
        return Shots(
            demo=_screen(clean_objects(cluster.view())),
            tree=_typed("tree", [header, *coloured_column(rows, header.index("STATUS"))]),
            why=_typed("why", map(coloured_topic, clean_text(output_of(cluster, _command("why"))).splitlines())),
        )


def _has_stopped(view: View) -> bool:
    [pool] = view.owners[POOLS.short_names[0]]
    return STOPPED in {vm.cells["Status"] for vm in view.vms} and STOPPED in pool.cells["Problem"]


def _screen(view: View) -> RenderableType:
    report = Report(line=f"{LAST.key}: {LAST.purpose}", commands=LAST.commands)
    hints = draw_hints(report, width=WIDTH, height=HEIGHT, kubeconfig=KUBECONFIG)
    free = HEIGHT - len(hints.plain.splitlines())
    return Group(draw(view, width=WIDTH, height=free), hints)


def _command(verb: str) -> Command:
    return "kubectl", "vmherd", verb, POOL


def _typed(verb: str, output: Iterable[str]) -> Text:
    lines = [Text(f"$ {joined([_command(verb)])}", style="bold"), *map(Text.from_ansi, output)]
    return Text("\n").join(lines)


FONT_FACE: Final = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)
"""rich's SVG loads a font from the internet. A page must not do so, and every viewer has a monospace font."""


def width_of(text: Text) -> int:
    return max(map(len, text.plain.splitlines()), default=0) + 1


def svg(content: RenderableType, *, title: str, name: str, width: int) -> str:
    """Return the picture of a terminal of this width. The ids in the picture contain `name`."""
    console = Console(
        record=True, width=width, height=1000, file=io.StringIO(), force_terminal=True, color_system="truecolor"
    )
    console.print(content, soft_wrap=False)
    drawn = console.export_svg(title=title, unique_id=f"vmherd-{name}")
    lines = FONT_FACE.sub("", drawn).splitlines()
    return "\n".join(line.rstrip() for line in lines) + "\n"


IMAGES = generated.ROOT / "docs" / "images"


def pictures(shots: Shots) -> dict[Path, str]:
    return {
        IMAGES / "demo.svg": svg(shots.demo, title="vmherd demo", name="demo", width=WIDTH),
        IMAGES / "tree.svg": svg(shots.tree, title="kubectl vmherd tree", name="tree", width=width_of(shots.tree)),
        IMAGES / "why.svg": svg(shots.why, title="kubectl vmherd why", name="why", width=width_of(shots.why)),
    }


if __name__ == "__main__":
    failures = (BinariesUnavailable, ControlPlaneError, DemoFailed)
    sys.exit(generated.main(sys.argv[1:], lambda: pictures(take()), "make pictures", failures))
