"""Draws the last experiment, the keys, and the lines to paste into another terminal. This module is pure."""

import shlex
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct
from rich.console import RenderableType
from rich.layout import Layout
from rich.text import Text

from controller.kubevirt.annotations import DRAIN_SECONDS
from sandbox.demo.experiments import EXPERIMENTS, FAIL, POOL, POOL_NAME, POOL_SIZE, Command, scale_command

TREE, WHY, LINES, QUIT = "t", "w", "l", "q"
OTHER_KEYS: Final = {TREE: "tree", WHY: "why", LINES: "lines to paste", QUIT: "quit"}

GAP = "  "
TALL = 32
"""The height of a terminal in which each key has a line with its purpose."""

LOW_LINES, TALL_LINES = 3, 5
"""The number of lines about the last experiment, in a small and in a tall terminal."""

KEYS_LINE: Final = "Press a key for an experiment, or l for lines to paste into another terminal."

MORE_LINES: Final[Sequence[tuple[str, tuple[Command, ...]]]] = (
    ("delete all VMIs of the set: new VMIs replace them", (("kubectl", "delete", "vmi", "-l", "myvmi=myvmi"),)),
    ("delete a VM: it is created again with the same name", (("kubectl", "delete", "vm", f"{POOL_NAME}-0"),)),
    ("let a VM fail at each start: the pool replaces it after three failed starts", FAIL),
    (
        "a VM that works is left alone: a scale-in deletes the VM before it",
        (
            ("kubectl", "vmherd", "busy", f"vm/{POOL_NAME}-3", "--for", "10m"),
            scale_command("vmpool", POOL_NAME, POOL_SIZE - 1),
        ),
    ),
    (
        "VMs drain before they leave: tree shows the mark, and the VM leaves after 30 seconds",
        (
            ("kubectl", "annotate", "vmpool", POOL_NAME, f"{DRAIN_SECONDS}=30"),
            scale_command("vmpool", POOL_NAME, POOL_SIZE - 2),
        ),
    ),
    ("show the state and the Events of the pool", (("kubectl", "describe", "vmpool", POOL_NAME),)),
    (
        "show the VMs of the pool, and why the pool is as it is",
        tuple(("kubectl", "vmherd", v, POOL) for v in ("tree", "why")),
    ),
)


class Report(Struct, frozen=True, kw_only=True):
    """What the last experiment does (`line`), its `commands`, its `error` or "", and the experiments that wait."""

    line: str = ""
    commands: tuple[Command, ...] = ()
    error: str = ""
    running: bool = False
    waiting: tuple[str, ...] = ()


def screen(tables: RenderableType, hints: Text) -> Layout:
    """Return the whole screen: tables at the top and hints at the bottom. If it is too small, tables are cut off."""
    layout = Layout()
    layout.split_column(Layout(tables), Layout(hints, size=len(hints.plain.splitlines())))
    return layout


def draw_hints(report: Report, *, width: int, height: int, kubeconfig: Path) -> Text:
    lines = [Text("-" * width, style="dim"), *report_lines(report, width, height), *key_lines(width, height)]
    lines.append(Text(f"export KUBECONFIG={kubeconfig}", style="dim"))
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return Text("\n").join(lines)


def report_lines(report: Report, width: int, height: int) -> list[Text]:
    """Return what the last experiment does or why it failed, and its commands: always the same number of lines."""
    number = LOW_LINES if height < TALL else TALL_LINES
    commands = wrapped(_typed(report.commands), "cyan", width)
    lines = cut(wrapped(*_summary(report), width), number - min(len(commands), number - 1))
    lines += cut(commands, number - len(lines))
    return [*lines, *(Text() for _ in range(number - len(lines)))]


def _summary(report: Report) -> tuple[str, str]:
    if not report.line:
        return KEYS_LINE, ""
    after = " ..." if report.running else ""
    after += f" (next: {', '.join(report.waiting)})" if report.waiting else ""
    if report.error:
        return f"{report.line}: {report.error}{after}", "red"
    return f"{report.line}{after}", "bold"


def _typed(commands: Sequence[Command]) -> str:
    return f"$ {joined(commands)}" if commands else ""


def wrapped(text: str, style: str, width: int) -> list[Text]:
    return [Text(line, style=style) for line in textwrap.wrap(text, max(width, 1), break_on_hyphens=False)]


def cut(lines: list[Text], number: int) -> list[Text]:
    if len(lines) > number:
        lines[number - 1].truncate(len(lines[number - 1]) - 4)
        lines[number - 1].append(" ...")
    return lines[:number]


def key_lines(width: int, height: int) -> list[Text]:
    others = list(OTHER_KEYS.items())
    if height < TALL:
        return packed([*((key, each.name) for key, each in EXPERIMENTS.items()), *others], width)
    names = max(len(each.name) for each in EXPERIMENTS.values())
    long = [key_text(key, f"{each.name:<{names}}  {each.purpose}") for key, each in EXPERIMENTS.items()]
    return [*long, *packed(others, width)]


def packed(keys: Iterable[tuple[str, str]], width: int) -> list[Text]:
    lines = [Text()]
    for key, name in keys:
        text = key_text(key, name)
        if lines[-1] and len(lines[-1]) + len(GAP) + len(text) > width:
            lines.append(Text())
        lines[-1].append(GAP if lines[-1] else "").append_text(text)
    return lines


def key_text(key: str, name: str) -> Text:
    return Text.assemble((key, "bold cyan"), f" {name}")


def joined(commands: Iterable[Command]) -> str:
    return "; ".join(map(shlex.join, commands))


def lines_to_paste(kubeconfig: Path, path: str, metrics_port: int) -> list[str]:
    """Return all experiments as lines for another terminal. `path` are the directories to add to PATH, or ""."""
    lines = ["In another terminal:", ""]
    lines.append(f"export KUBECONFIG={shlex.quote(str(kubeconfig))}" + (f' PATH="$PATH:{path}"' if path else ""))
    entries = [(f"{each.key} {each.name}: {each.purpose}", each.commands) for each in EXPERIMENTS.values()]
    for purpose, commands in (*entries, *MORE_LINES):
        lines += [f"# {purpose}", *map(shlex.join, commands)]
    return [*lines, "", f"Metrics are at http://127.0.0.1:{metrics_port}/metrics."]
