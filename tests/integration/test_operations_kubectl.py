"""The views of users and of Prometheus: kubectl, the metrics page, the probes."""

import subprocess

import pytest

from tests import promtool
from tests.controlplane.namespace import SetNamespace
from tests.controlplane.programs import ControllerProcess
from tests.controlplane.waits import eventually

pytestmark = pytest.mark.cluster


@pytest.mark.e2e
def test_promtool_accepts_the_metrics_page(sets: SetNamespace, running: ControllerProcess) -> None:
    tool = promtool.find_or_skip()
    sets.make(2)
    sets.wait_for(2)
    done = subprocess.run(
        [tool, "check", "metrics"], input=running.metrics(), capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_series_of_a_set_show_its_counts_and_end_with_the_set(
    sets: SetNamespace, running: ControllerProcess
) -> None:
    sets.make(3)
    sets.wait_for(3)
    sets.play(next(iter(sets.alive())))
    expected = {"desired": 3, "current": 3, "ready": 1, "updated": 3, "unavailable": 2}
    eventually(lambda: figures(sets, running) == expected)
    sets.kubectl("delete", "vmirs", "herd", "--cascade=background")
    eventually(lambda: figures(sets, running) == {}, what="the series are removed")


def test_the_probes_report_a_live_and_ready_controller(running: ControllerProcess) -> None:
    assert running.health("healthz")[0] == 200
    assert running.health("readyz")[0] == 200
    assert running.health("nothing")[0] == 404


def figures(sets: SetNamespace, program: ControllerProcess) -> dict[str, float]:
    """The replica metrics of this namespace's set, from the metrics page."""
    found = {}
    for line in program.metrics().splitlines():
        if line.startswith("vmherd_replicas_") and f'namespace="{sets.namespace}"' in line:
            name, value = line.partition("{")[0], line.rpartition(" ")[2]
            found[name.removeprefix("vmherd_replicas_")] = float(value)
    return found
