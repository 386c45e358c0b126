"""The CPU time and the memory of a process tree, and controllers as processes."""

import os
import subprocess
import sys

from benchmarks import controllers as process_tree

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
