"""`kubectl vmherd takeover, version`: the environment, and no cluster. The golden files have the usual output."""

import json

import pytest

from tests.plugin.cluster import Cluster, Shell


def test_switches_that_destroy_are_not_read_from_the_environment(
    cluster: Cluster, shell: Shell, monkeypatch: pytest.MonkeyPatch
):
    cluster.install_kubevirt()
    for name in ("UNDO", "FORCE", "SCALE_IN"):
        monkeypatch.setenv(f"VMHERD_{name}", "true")
        monkeypatch.setenv(f"KUBECTL_VMHERD_{name}", "true")
    assert shell.output("takeover").startswith("patched KubeVirt kubevirt/kubevirt: virt-controller restarts without")


def test_the_version_needs_no_cluster(shell: Shell):
    assert shell.output("version").startswith("vmherd ")
    assert shell.output("version -n shop --context=nowhere").startswith("vmherd ")
    assert json.loads(shell.output("version -o json"))["clientVersion"]["version"]
    assert shell.output("--version").startswith("vmherd ")
