"""A release from its installation to its uninstallation, with Helm's `--wait`, its test and its hooks."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from sandbox.controlplane import CRD_DIRECTORIES, install_definitions
from tests.charts.releases import KUBEVIRTS
from tests.charts.test_hooks import helm_runs, left_of_hooks
from tests.controlplane.documents import FINALIZER, finalizers_of, open_definition
from tests.controlplane.namespace import SetNamespace
from tests.controlplane.waits import eventually
from tests.integration.kubevirt_installation import RESTING
from tests.realnode.release import VALUES, WAIT, Release, document, status_of
from tools.chart.generated import CHART

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

HERD = 500
STEP, STEP_S = 16, 1.0
"""The set grows by this number of VMIs, once in this time. So its growth lasts longer than an upgrade."""


def test_a_release_is_installed_tested_upgraded_rolled_back_and_uninstalled(bare: Release) -> None:
    site, hooks = bare.site, {"cleanup": {"enabled": True}}
    bare.install(hooks=hooks)
    assert "Succeeded" in site.helm("test", "vmherd", "--timeout=60s").stdout
    assert set(bare.restarts().values()) == {0}
    first, sets, pools = set(bare.pods()), bare.sets(), bare.pools()
    sets.make(STEP)
    with ThreadPoolExecutor(1) as thread:
        growth = thread.submit(grow, sets)
        eventually(lambda: len(sets.vmis()) > HERD // 10, what="the set grows")
        bare.upgrade(settings={"workers": 5}, hooks=hooks)
        assert not growth.done(), "the upgrade must happen during the growth"
        growth.result()
    sets.wait_ready(HERD, within_s=60)
    eventually(lambda: first.isdisjoint(bare.pods()), what="the old Pods are gone")
    assert sets.created() == dict.fromkeys(sets.vmis(), 1)
    assert len(sets.vmis()) == HERD
    writers = bare.writers(sets.since, sets.namespace)
    assert len(writers) == len(set(writers)) >= 2, "a Pod that lost the lease never wrote again"

    site.helm("rollback", "vmherd", "1", *WAIT)
    bare.wait_until_ready()
    [container] = site.deployment()["spec"]["template"]["spec"]["containers"]
    assert "--workers=5" not in container["args"]
    pools.make(1)
    pools.wait_for_ordinals(0)
    assert FINALIZER in finalizers_of(pools.read())

    site.helm("uninstall", "vmherd", *WAIT)
    assert FINALIZER not in finalizers_of(pools.read())
    assert len(sets.vmis()) == HERD + 1
    eventually(lambda: left_of_hooks(site) == [], what="the objects of the hooks are gone")
    eventually(lambda: bare.pods() == {}, what="the Pods are gone")


def grow(sets: SetNamespace) -> None:
    for replicas in (*range(STEP, HERD, STEP), HERD):
        sets.scale(replicas)
        time.sleep(STEP_S)


KUBEVIRT = {"apiVersion": "kubevirt.io/v1", "kind": "KubeVirt", "metadata": {"name": "kubevirt"}, "spec": {}}


def test_the_hook_of_the_takeover_mode_waits_for_kubevirt_before_the_pods_start(bare: Release) -> None:
    site = bare.site
    install_definitions(site.plane.kubeconfig, [CRD_DIRECTORIES[0]])
    site.kubectl.apply(open_definition("KubeVirt", KUBEVIRTS, "v1"))
    eventually(lambda: KUBEVIRTS in site.served(), what="the kind KubeVirt is served")
    virt_controller = document("virt-controller")
    site.kubectl.apply(KUBEVIRT, virt_controller)
    site.kubectl("rollout", "status", "deployment/virt-controller", "--timeout=60s")

    def patches() -> list[dict[str, str]]:
        spec = site.kubectl.json("get", "kubevirt", "kubevirt")["spec"]
        return list((spec.get("customizeComponents") or {}).get("patches") or ())

    values = {**VALUES, "mode": "takeover", "hooks": {"takeover": {"enabled": True}}}
    with helm_runs(site, "install", "vmherd", str(CHART), "--wait", values=values):
        eventually(patches, what="the Job patches KubeVirt")
        assert bare.pods() == {}, "the Pods start after the hook"
        virt_controller["spec"]["template"]["spec"]["containers"][0]["args"] += RESTING
        site.kubectl.apply(virt_controller)  # KubeVirt's operator does this
    assert [status_of(pod)["restartCount"] for pod in bare.pods().values()] == [0, 0]
    sets = bare.sets()
    sets.make(2)
    eventually(lambda: sets.status().get("readyReplicas") == 2, what="the set is ready")
    with helm_runs(site, "uninstall", "vmherd"):
        pass
    assert patches() == []


QUICK = {"periodSeconds": 1, "timeoutSeconds": 1, "failureThreshold": 3}


def test_a_leader_that_hangs_is_replaced_and_started_again(bare: Release) -> None:
    probes = {name: {"httpGet": {"path": "/healthz", "port": "health"}, **QUICK} for name in ("livenessProbe",)}
    bare.install(**probes, terminationGracePeriodSeconds=6, settings={"shutdownGrace": "3s"})
    sets, before = bare.sets(), bare.leader()
    sets.make(3)
    sets.wait_ready(3)
    bare.kill(before, "SIGSTOP")
    sets.scale(6)
    sets.wait_ready(6, within_s=40)
    eventually(lambda: bare.restarts()[before] == 1, what="the kubelet starts the container again")
    bare.wait_until_ready()
    assert bare.leader() not in ("", before)
    assert bare.writers(sets.since, sets.namespace) == [before, bare.leader()]
