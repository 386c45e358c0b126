"""The check whether the installed KubeVirt is new enough."""

import pytest
from structlog.testing import capture_logs

from controller.config.settings import Config
from tests.controller.takeover import answers
from tests.controller.takeover.test_second_writer import RESTING, deployment

pytestmark = pytest.mark.looptime


def with_version(version: str, *args: str) -> answers.Answers:
    server = answers.beside_a_kubevirt()
    kubevirt = {"metadata": {"namespace": "kubevirt", "name": "kubevirt"}, "status": {}}
    if version:
        kubevirt["status"] = {"observedKubeVirtVersion": version}
    server.by_path |= {answers.KUBEVIRTS: [{"items": [kubevirt]}], answers.VIRT_CONTROLLER: [deployment(*args)]}
    return server


@pytest.mark.parametrize("version", ["v1.2.3", "v1.3.0", "v1.9.0-rc.0", "v2.0.0", "", "devel", "v0.0.0-master+abc"])
async def test_only_an_unsupported_version_of_kubevirt_is_a_warning(version: str):
    with capture_logs() as lines:
        assert await answers.problems(with_version(version, *RESTING), Config(mode="takeover")) == ()
    told = [(line["log_level"], line["found"], line["oldest"]) for line in lines]
    assert told == ([("warning", "v1.2.3", "1.3")] if version == "v1.2.3" else [])


async def test_a_kubevirt_without_the_flag_for_pools_cannot_be_taken_over():
    found = await answers.problems(with_version("v0.48.1", *RESTING), Config(mode="takeover"))
    [problem] = found
    assert str(problem).startswith("KubeVirt v0.48.1 cannot be taken over")
    assert "upgrade KubeVirt to 1.3 or newer, or use --mode alongside" in str(problem)


async def test_without_the_permission_to_list_kubevirts_the_version_is_not_checked():
    server = with_version("v0.48.1")
    server.denied = {("list", "kubevirts")}
    config = Config(mode="alongside", replicaset_group="vmherd.dev", pool_group="pool.vmherd.dev")
    server.by_path |= {
        "/apis/vmherd.dev/v1": [{"resources": [{"name": answers.SETS}]}],
        "/apis/pool.vmherd.dev/v1beta1": [{"resources": [{"name": answers.POOLS}]}],
    }
    assert await answers.problems(server, config) == ()
    assert answers.KUBEVIRTS not in server.asked
