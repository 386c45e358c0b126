"""The worker processes of the simulation."""

import os
import subprocess
import sys
from pathlib import Path
from subprocess import DEVNULL, PIPE

ROOT = Path(__file__).parents[2]

PARENT = """
import os
from tests.simulation.workers import workers
if __name__ == "__main__":
    with workers(1) as pool:
        print(pool.submit(os.getpid).result(), flush=True)
        input()
"""


def test_the_workers_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, script]
    with subprocess.Popen(command, env=environment, stdin=PIPE, stdout=PIPE, stderr=DEVNULL) as parent:
        assert parent.stdout is not None
        assert int(parent.stdout.readline()) != parent.pid
        parent.kill()
        parent.communicate(timeout=10)  # returns when no process has the output open: the worker has it while it lives
