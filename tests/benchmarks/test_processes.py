"""The CPU time and the memory of a process tree, and controllers as processes."""

import os
import subprocess
import sys
import time

import pytest

from benchmarks import process_tree
from benchmarks.controllers import running_controller

BUSY = "import time; end = time.process_time() + 0.1\nwhile time.process_time() < end: pass"


def test_the_cpu_time_of_ended_children_counts():
    before = process_tree.cpu_s(os.getpid())
    subprocess.run([sys.executable, "-c", BUSY], check=True)
    assert process_tree.cpu_s(os.getpid()) - before >= 0.09


def test_the_memory_of_running_children_counts():
    own = process_tree.rss_mb(os.getpid())
    with subprocess.Popen([sys.executable, "-c", "print(1, flush=True); input()"], stdin=-1, stdout=-1) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert process_tree.rss_mb(os.getpid()) > own + 3
        child.communicate(b"\n")


def test_another_controller_finds_the_kubeconfig_in_its_environment_and_ends_with_its_children(tmp_path):
    log, kubeconfig = tmp_path / "log", tmp_path / "kubeconfig"
    with running_controller(kubeconfig, log, against='echo "using $KUBECONFIG"; sleep 60 & wait') as program:
        program.wait_for(f"using {kubeconfig}", within_s=20)
        assert program.rss_mb > 0
    deadline = time.monotonic() + 20
    while process_tree.rss_mb(program.pid) > 0 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert process_tree.rss_mb(program.pid) == 0


def test_a_controller_that_ends_is_an_error_with_its_log(tmp_path):
    starting = running_controller(tmp_path / "kubeconfig", tmp_path / "log", against="echo broken; exit 3")
    with starting as program, pytest.raises(RuntimeError, match="broken"):
        program.wait_for("never", within_s=20)
