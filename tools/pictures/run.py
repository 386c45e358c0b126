"""Runs the demo until an update has stopped at a bad image, takes what the terminal shows, and draws it as SVG."""

import io
import re
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct
from rich.console import Console, Group, RenderableType
from rich.text import Text

from controller.kinds import POOLS
from plugin.views.tables import coloured_column, coloured_topic
from sandbox.demo.cluster import DemoCluster, DemoFailed, running_cluster, until
from sandbox.demo.experiments import EXPERIMENTS, POOL, POOL_EXAMPLE, SET_EXAMPLE, Command, Experiment
from sandbox.demo.hints import Report, draw_hints, joined
from sandbox.demo.runner import Runner, as_process, environment, one_line, running_experiments
from sandbox.demo.status import is_complete, status_of
from sandbox.demo.tables import View, draw
from sandbox.kubectl import run_kubectl
from tools.pictures.scrub import NOW, clean_objects, clean_table, clean_text

WIDTH, HEIGHT = 104, 36
UPDATE, BAD_IMAGE = EXPERIMENTS["2"], EXPERIMENTS["4"]
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
        for example in (SET_EXAMPLE, POOL_EXAMPLE):
            run_kubectl(cluster.kubeconfig, "apply", "-f", str(example))
        until(lambda: _all_complete(cluster.view()), "all VMs and VMIs are ready")
        with running_experiments(cluster.view, cluster.kubeconfig) as runner:
            _make(runner, UPDATE)
            until(lambda: _pool_has(cluster.view(), revision=2), "the update is complete")
            report = _make(runner, BAD_IMAGE)
            until(lambda: _has_stopped(cluster.view()), "the update has stopped at the bad image")
        return Shots(
            demo=_screen(clean_objects(cluster.view()), report),
            tree=_typed("tree", _coloured_table(clean_table(_plugin(cluster, "tree")).splitlines())),
            why=_typed("why", map(coloured_topic, clean_text(_plugin(cluster, "why")).splitlines())),
        )


def _make(runner: Runner, experiment: Experiment) -> Report:
    """Press the key of an experiment, and return its report when its commands are done. Raises DemoFailed."""
    runner.press(experiment)
    until(lambda: _is_done(runner.report, experiment), experiment.name)
    if runner.report.error:
        raise DemoFailed(f"{runner.report.line}: {runner.report.error}")
    return runner.report


def _is_done(report: Report, experiment: Experiment) -> bool:
    return report.line.startswith(experiment.key) and not report.running and not report.waiting


def _all_complete(view: View) -> bool:
    return len(view.owners) == 2 and all(map(is_complete, view.owners))


def _pool_has(view: View, *, revision: int) -> bool:
    [pool] = view.of(POOLS)
    return is_complete(pool) and str(status_of(pool).get("currentRevision", "")).endswith(f"-{revision}")


def _has_stopped(view: View) -> bool:
    """Return True if a VM cannot pull its image, and the pool's status says so."""
    [pool] = view.of(POOLS)
    states = {str(status_of(vm).get("printableStatus")) for vm in view.vms}
    return STOPPED in states and STOPPED in str(status_of(pool).get("problem", ""))


def _screen(view: View, report: Report) -> RenderableType:
    hints = draw_hints(report, width=WIDTH, height=HEIGHT, kubeconfig=KUBECONFIG)
    free = HEIGHT - len(hints.plain.splitlines())
    return Group(draw(view, width=WIDTH, height=free, now=NOW), hints)


def _plugin(cluster: DemoCluster, verb: str) -> str:
    """Return the output of the plugin about the pool. Raises DemoFailed."""
    command = _command(verb)
    done = subprocess.run(
        as_process(command), env=environment(cluster.kubeconfig), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise DemoFailed(f"{joined([command])}: {one_line(done.stderr)}")
    return done.stdout


def _command(verb: str) -> Command:
    return "kubectl", "vmherd", verb, POOL


def _coloured_table(lines: Sequence[str]) -> list[str]:
    """Return the table with the colours that the plugin uses on a terminal."""
    return [lines[0], *coloured_column(lines[1:], lines[0].index("STATUS"))]


def _typed(verb: str, output: Iterable[str]) -> Text:
    """Return the command and its output, as a terminal shows them."""
    lines = [Text(f"$ {joined([_command(verb)])}", style="bold"), *map(Text.from_ansi, output)]
    return Text("\n").join(lines)


FONT_FACE: Final = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)
"""rich's SVG loads a font from the internet. A page must not do so, and every viewer has a monospace font."""


def width_of(text: Text) -> int:
    """Return the width of a terminal in which no line of the text is broken."""
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
