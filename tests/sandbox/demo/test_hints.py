"""The experiments of the demo, the lines below its tables, and the lines to paste."""

import json
import re
import shlex
from pathlib import Path

import pytest
from rich.console import Console
from rich.screen import Screen
from rich.text import Text

from sandbox.demo.experiments import EXPERIMENTS
from sandbox.demo.hints import OTHER_KEYS, Report, draw_hints, lines_to_paste, screen

KUBECONFIG = Path("/tmp/vmherd-demo-abcdefgh/kubeconfig")
ALL_KEYS = {*EXPERIMENTS, *OTHER_KEYS}


def hints(report: Report | None = None, *, width: int = 80, height: int = 24) -> list[str]:
    return draw_hints(report or Report(), width=width, height=height, kubeconfig=KUBECONFIG).plain.splitlines()


def keys_in(lines: list[str]) -> set[str]:
    return set(re.findall(r"(?:^|  )(\w) (?=\w)", "\n".join(lines), re.MULTILINE))


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (40, 24), (200, 60)])
def test_all_keys_and_the_kubeconfig_are_shown(width: int, height: int) -> None:
    lines = hints(width=width, height=height)
    assert keys_in(lines) >= ALL_KEYS
    assert max(map(len, lines)) <= width
    assert lines[-1].startswith("export KUBECONFIG=/tmp/vmherd-demo-")


@pytest.mark.parametrize("line", ["5: let the pool replace each VM", "3: " + "a long line " * 30])
def test_the_command_is_always_shown(line: str) -> None:
    shown = hints(Report(line=line, commands=EXPERIMENTS["4"].commands))
    command = next(each for each in shown if each.startswith("$ kubectl patch vmpool"))
    assert not command.endswith("...")


def test_a_failure_and_waiting_experiments_are_shown() -> None:
    assert hints(Report(line="6 detach failed", error="not found"))[1] == "6 detach failed: not found"
    running = Report(line="1: scale", running=True, waiting=("2 update", "7 undo"))
    assert hints(running)[1] == "1: scale ... (next: 2 update, 7 undo)"


def picture(tables: int, *, width: int, height: int) -> list[str]:
    console = Console(width=width, height=height, force_terminal=False)
    text = Text("\n").join(Text(f"row {number}") for number in range(tables))
    drawn = draw_hints(Report(), width=width, height=height, kubeconfig=KUBECONFIG)
    with console.capture() as capture:
        console.print(Screen(screen(text, drawn)), end="")
    return [line.rstrip() for line in capture.get().split("\n")]


@pytest.mark.parametrize("rows", [0, 5, 500])
@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (80, 10)])
def test_the_screen_has_the_height_of_the_terminal_and_ends_with_the_hints(rows: int, width: int, height: int) -> None:
    lines = picture(rows, width=width, height=height)
    assert len(lines) == height
    bottom = hints(width=width, height=height)
    assert lines[-len(bottom) :] == bottom


def test_the_lines_to_paste_have_every_experiment_and_the_missing_path() -> None:
    lines = lines_to_paste(KUBECONFIG, "/opt/bin", 8080)
    assert f'export KUBECONFIG={KUBECONFIG} PATH="$PATH:/opt/bin"' in lines
    assert all(shlex.join(command) in lines for each in EXPERIMENTS.values() for command in each.commands)
    assert lines[-1] == "Metrics are at http://127.0.0.1:8080/metrics."


def test_an_update_repairs_a_bad_image() -> None:
    def annotations(key: str) -> dict[str, str | None]:
        change = json.loads(EXPERIMENTS[key].commands[0][-1])
        found = change["spec"]["virtualMachineTemplate"]["spec"]["template"]["metadata"]["annotations"]
        return dict(found)

    assert [annotations("2")[name] for name in annotations("4")] == [None]
