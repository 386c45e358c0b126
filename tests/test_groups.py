"""One pytest worker runs all tests of a group."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TESTS = """
import pytest

pytestmark = pytest.mark.cluster

@pytest.mark.parametrize("number", range(5))
def test_it(number):
    pass
"""


@pytest.mark.long
def test_one_worker_runs_all_tests_of_a_group(tmp_path: Path) -> None:
    files = [tmp_path / "test_one.py", tmp_path / "test_other.py"]
    for file in files:
        file.write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = cluster\n")
    command = [sys.executable, "-m", "pytest", "-p", "tests.groups", "-p", "no:cacheprovider", "--verbose"]
    done = subprocess.run(
        [*command, "--numprocesses=2", "--dist=loadgroup", str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    ran = re.findall(r"\[(gw\d)\].* PASSED (test_\w+)\.py", done.stdout)
    assert len(ran) == 10, done.stdout + done.stderr
    workers = {name: {worker for worker, file in ran if file == name} for _, name in ran}
    assert [len(each) for each in workers.values()] == [1, 1], done.stdout
