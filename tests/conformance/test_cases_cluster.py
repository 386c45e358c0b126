"""All cases of the conformance suite, one test for each case.

`vmherd sandbox conformance` runs once, as a user types it: a process of its own with a control plane, the simulator and
one controller. Many cases run at the same time. Each test shows the result of its case from the reports.
"""

import json
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from conformance.case import Case
from conformance.catalogue import CASES
from sandbox.binaries import Binaries
from tests.cluster import BARE_ENVIRONMENT
from tests.programs import finished

ROOT = Path(__file__).resolve().parents[2]
RUN_S = 400
PARALLEL = 12
"""The number of cases that run at the same time. Most cases wait most of the time."""

pytestmark = pytest.mark.timeout(RUN_S + 20)


@pytest.fixture(scope="session")
def conformance_run(
    control_plane_binaries: Binaries, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """The JSON report of one run with the cases of the selected tests."""
    assert control_plane_binaries
    ids = [item.callspec.params["case"].id for item in request.session.items if item.path == Path(__file__)]
    report = tmp_path_factory.mktemp("conformance") / "report.xml"
    command = [sys.executable, "-m", "controller", "sandbox", "conformance", "--only", ",".join(ids)]
    # The deletion of the namespaces would cost as much CPU time as the cases.
    flags = ["--keep", "--parallel", str(PARALLEL), "--output", "json", "--report", str(report)]
    done = finished([*command, *flags], cwd=ROOT, env=BARE_ENVIRONMENT, within_s=RUN_S)
    assert report.exists(), f"the suite ended with {done.returncode}:\n{done.stdout}{done.stderr}"
    found: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == (1 if found["counts"]["failed"] else 0), done.stderr
    assert {kind["reconciler"] for kind in found["kinds"].values()} == {"vmherd"}
    assert found["versions"].keys() >= {"suite", "Kubernetes", "nodes", "default StorageClass"}
    assert ElementTree.parse(report).getroot().get("tests") == str(len(ids))
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_a_case_passes(conformance_run: dict[str, Any], case: Case) -> None:
    [result] = [each for each in conformance_run["cases"] if each["id"] == case.id]
    if result["status"] != "passed":
        expected = f"expected {result['expected']}\nseen: {result['seen']}" if result["expected"] else result["reason"]
        pytest.fail(f"{case.title}\n{result['status']} after {result['seconds']} s\n{expected}", pytrace=False)
