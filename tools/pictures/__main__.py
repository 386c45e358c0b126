"""`python -m tools.pictures` makes the pictures of the README from a real run, with steady names and ages."""

import io
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct
from rich.console import Console, Group, RenderableType
from rich.text import Text

from controller.kinds import POOLS
from plugin.views.tables import coloured_column, coloured_topic
from sandbox.binaries import BinariesUnavailable
from sandbox.controlplane import ControlPlaneError
from sandbox.demo.cluster import DemoFailed, running_cluster, until
from sandbox.demo.experiments import (
    EXPERIMENTS,
    POOL,
    POOL_EXAMPLE,
    SET,
    SET_EXAMPLE,
    UPDATE,
    Command,
    apply_command,
)
from sandbox.demo.hints import Report, draw_hints, joined
from sandbox.demo.once import complete, output_of
from sandbox.demo.tables import View, draw
from tools import generated
from tools.pictures.scrub import clean_objects, clean_table, clean_text

WIDTH, HEIGHT = 104, 36
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
        return Shots(
            demo=_screen(clean_objects(cluster.view())),
            tree=_typed("tree", _coloured_table(clean_table(output_of(cluster, _command("tree"))).splitlines())),
            why=_typed("why", map(coloured_topic, clean_text(output_of(cluster, _command("why"))).splitlines())),
        )


def _has_stopped(view: View) -> bool:
    """Return True if a VM cannot pull its image, and the pool's status says so."""
    [pool] = view.owners[POOLS.short_names[0]]
    return STOPPED in {vm.cells["Status"] for vm in view.vms} and STOPPED in pool.cells["Problem"]


def _screen(view: View) -> RenderableType:
    report = Report(line=f"{LAST.key}: {LAST.purpose}", commands=LAST.commands)
    hints = draw_hints(report, width=WIDTH, height=HEIGHT, kubeconfig=KUBECONFIG)
    free = HEIGHT - len(hints.plain.splitlines())
    return Group(draw(view, width=WIDTH, height=free), hints)


def _command(verb: str) -> Command:
    return "kubectl", "vmherd", verb, POOL


def _coloured_table(lines: Sequence[str]) -> list[str]:
    return [lines[0], *coloured_column(lines[1:], lines[0].index("STATUS"))]


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
