"""What people and Prometheus see: kubectl, the metrics page, the probes."""

from __future__ import annotations

import re
import subprocess

import pytest

from tests import promtool
from tests.cluster import skip_or_fail
from tests.integration.herd import Herd, Place, eventually

pytestmark = pytest.mark.cluster


def test_kubectl_scale_scales_out_and_in(place: Place) -> None:
    place.make_set(1)
    place.wait_for(1)
    place.kubectl("scale", "vmirs", "herd", "--replicas=5")
    place.wait_for(5)
    place.kubectl("scale", "vmirs", "herd", "--replicas=0")
    place.wait_for(0)


def test_kubectl_get_shows_the_columns_that_users_know_with_the_right_numbers(place: Place) -> None:
    place.make_set(3)
    for name in sorted(place.wait_for(3))[:2]:
        place.play(name)
    eventually(lambda: place.status().get("readyReplicas") == 2, what="two are ready")
    header, row = place.kubectl("get", "vmirs").stdout.splitlines()
    assert header.split() == ["NAME", "DESIRED", "CURRENT", "READY", "AGE"]
    assert row.split()[:4] == ["herd", "3", "3", "2"]
    assert re.fullmatch(r"\d+[smh].*", row.split()[4])


@pytest.mark.e2e
def test_the_metrics_page_is_well_formed_in_promtools_eyes(place: Place, running: Herd) -> None:
    tool = promtool.find_or_fetch()
    if tool is None:
        skip_or_fail("promtool: not on this machine, and Debian's package could not be downloaded")
    place.make_set(2)
    place.wait_for(2)
    done = subprocess.run(
        [tool, "check", "metrics"], input=running.metrics(), capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_sets_series_show_its_figures_and_go_with_it(place: Place, running: Herd) -> None:
    place.make_set(3)
    place.wait_for(3)
    place.play(next(iter(place.alive())))
    eventually(lambda: figures(place, running) == {"desired": 3, "current": 3, "ready": 1, "updated": 3})
    place.kubectl("delete", "vmirs", "herd", "--cascade=background")
    eventually(lambda: figures(place, running) == {}, what="the series go")


def test_the_probes_say_that_it_lives_and_is_ready(running: Herd) -> None:
    assert running.health("healthz")[0] == 200
    assert running.health("readyz")[0] == 200
    assert running.health("nothing")[0] == 404


def figures(place: Place, program: Herd) -> dict[str, float]:
    """The replicas of this namespace's set, as the metrics page shows them."""
    found = {}
    for line in program.metrics().splitlines():
        if line.startswith("vmherd_replicas_") and f'namespace="{place.namespace}"' in line:
            name, value = line.partition("{")[0], line.rpartition(" ")[2]
            found[name.removeprefix("vmherd_replicas_")] = float(value)
    return found
