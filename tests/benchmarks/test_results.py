"""Cases run in rounds, and their results become tables. And the CPU time and the memory of a process tree."""

import os
import subprocess
import sys

import pytest

from benchmarks import __main__ as runner
from benchmarks import controllers as process_tree
from benchmarks import figures
from benchmarks.case import About, Case, Conditions, Measure, Result, Setting
from benchmarks.cases import CASES
from benchmarks.figures import table

QUIET, BUSY = (Conditions("2026-11-22", 2, "3.11.7", "abc1234", others) for others in (0.01, 0.6))


def made_up(size: int = 1_000, *, conditions: Conditions = QUIET, command: str = "", **values: float) -> Result:
    rounds = [{key: value * factor for key, value in values.items()} for factor in (1.0, 2.0, 4.0)]
    return Result("set-burst", size, command, rounds=rounds, conditions=[conditions] * 3)


def test_each_round_has_its_own_directory_and_its_values(tmp_path):
    seen: list[Setting] = []

    def measure(setting: Setting) -> dict[str, float]:
        assert setting.directory.is_dir()
        seen.append(setting)
        return {"cpu": float(len(seen))}

    case = Case("toy", "Toy", "A toy.", "VMs", (5, 7), (Measure("cpu", "CPU", "s", About.CPU),), measure)
    results = runner.run(case, runner.Options(rounds=2), tell=lambda _: None)
    assert [result.rounds for result in results] == [[{"cpu": 1.0}, {"cpu": 2.0}], [{"cpu": 3.0}, {"cpu": 4.0}]]
    assert len({setting.directory for setting in seen}) == 4
    assert results[0].command == 'make bench ARGS="toy --sizes 5 --rounds 2"'
    assert 0 <= results[0].others <= 1


def test_the_table_shows_the_spread_and_marks_a_missed_target():
    shown = table(CASES["set-burst"], made_up(up_cpu_ms=0.5, up_bare_cpu_ratio=1.0))
    assert "| CPU for each create (ms) |  | 0.50 | 1.00 | 2.00 |" in shown
    assert "| CPU for each create, times the bare loop (x) | at most 1.30 | 1.00 | **2.00** | 4.00 |" in shown
    assert "revision abc1234" in shown


def test_wall_times_of_a_busy_machine_are_not_shown():
    shown = table(CASES["set-burst"], made_up(conditions=BUSY, up_s=1.0, up_cpu_ms=0.5))
    assert "| VMIs: all created (s) |  | not usable | not usable | not usable |" in shown
    assert "| CPU for each create (ms) |  | 0.50 | 1.00 | 2.00 |" in shown


def test_a_result_of_a_quiet_machine_replaces_the_earlier_one_of_the_same_case_size_and_python(tmp_path):
    file = tmp_path / "figures.json"
    file.write_text("[]")
    newer = Conditions("2026-11-23", 2, "3.14.6", "abc1234", 0.01)
    results = [made_up(up_s=1.0), made_up(10, up_s=2.0), made_up(conditions=newer, up_s=3.0), made_up(up_s=4.0)]
    for each in results:
        figures.note(each, file)
    assert figures.read(file) == [results[1], results[3], results[2]]
    figures.note(made_up(conditions=BUSY), file)
    figures.note(made_up(command="make bench --quick"), file)
    figures.note(Result("set-burst", 10, "make bench", "another", conditions=[QUIET]), file)
    assert figures.read(file) == [results[1], results[3], results[2]]


@pytest.mark.parametrize("name", ["planning", "changes"])
def test_a_case_in_this_process_fills_all_its_measures(name, tmp_path):
    case = CASES[name]
    values = case.run(Setting(20, tmp_path))
    assert [measure.key for measure in case.measures if values[measure.key] <= 0] == []


SPINS = "import time; end = time.process_time() + 0.1\nwhile time.process_time() < end: pass"


def test_the_cpu_time_of_ended_children_counts():
    before = process_tree.cpu_s(os.getpid())
    subprocess.run([sys.executable, "-c", SPINS], check=True)
    assert process_tree.cpu_s(os.getpid()) - before >= 0.09


def test_the_memory_of_running_children_counts():
    own = process_tree.rss_mb(os.getpid())
    with subprocess.Popen([sys.executable, "-c", "print(1, flush=True); input()"], stdin=-1, stdout=-1) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert process_tree.rss_mb(os.getpid()) > own + 3
        child.communicate(b"\n")
