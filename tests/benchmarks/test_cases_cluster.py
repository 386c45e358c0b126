"""The cases that need a control plane, with a tiny size. No test looks at a time."""

import sys

import pytest

from benchmarks.case import Setting
from benchmarks.cases import CASES

pytestmark = pytest.mark.e2e  # they take minutes

FLAGS = "--metrics-bind-address=0 --health-probe-bind-address=0"
VMHERD = f'exec {sys.executable} -m controller run --kubeconfig "$KUBECONFIG" {FLAGS}'


@pytest.mark.usefixtures("control_plane_binaries")
@pytest.mark.parametrize(("name", "against"), [("set-burst", VMHERD), ("pool-burst", "")])
def test_a_burst_fills_all_its_measures(name, against, tmp_path):
    case = CASES[name]
    values = case.run(Setting(3, tmp_path, against, quick=True))
    assert {measure.key for measure in case.measures} <= values.keys()
    assert (values["up_writes"], values["down_writes"]) == (1.0, 1.0)


@pytest.mark.usefixtures("control_plane_binaries")  # it needs no control plane, but half a minute
def test_the_fleet_case_fills_all_its_measures(tmp_path):
    case = CASES["fleet"]
    values = case.run(Setting(30, tmp_path, quick=True))
    assert {measure.key for measure in case.measures} <= values.keys()
    assert values["missed"] == 0
    assert values["rest_requests"] <= 1, "each minute, the controller looks once for a second writer"
