"""The chart on OpenShift: an admission policy imitates the SecurityContextConstraints "restricted-v2"."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.controlplane import ControlPlane
from tests.charts.releases import Site
from tests.charts.test_pods import HOOKS, USERS, pod_specs
from tests.cluster import Kubectl
from tests.controlplane.waits import eventually
from tests.helm import helm_or_skip
from tools.chart.helm import MAJORS

pytestmark = [pytest.mark.cluster, pytest.mark.e2e]

POLICY = Path(__file__).with_name("restricted-v2.yaml")
RANGE = "1000700000/10000"
FIXED = {"podSecurityContext": {"runAsNonRoot": True, **USERS}}
METRICS = {"metrics": {"secure": {"enabled": True, "certificateSecret": "certificate"}}}


def refusals(site: Site, values: dict[str, Any]) -> list[str]:
    """For each Pod of the chart, the error message of the API server, or "" if the API server accepts the Pod."""
    return [answer(site, spec) for spec in pod_specs(site.helm.render({**HOOKS, **values}))]


def answer(site: Site, spec: dict[str, Any]) -> str:
    # The account of a Pod must exist.
    spec = {**spec, "serviceAccountName": "default"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, "spec": spec}
    return site.kubectl("create", "--dry-run=server", "-f", "-", stdin=pod, check=False).stderr


@pytest.fixture(scope="module")
def project(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A namespace as OpenShift makes it, with ranges for users and groups."""
    helm_or_skip(MAJORS[-1])
    site = Site.opened(plane, MAJORS[-1], tmp_path_factory.mktemp("project"))
    Kubectl(plane.kubeconfig)("apply", "-f", str(POLICY))
    ranges = [f"openshift.io/sa.scc.{name}={RANGE}" for name in ("uid-range", "supplemental-groups")]
    site.kubectl("annotate", "namespace", site.namespace, *ranges)
    site.kubectl("label", "namespace", site.namespace, "openshift=imitated")
    context = {"runAsUser": 65532, "runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    limits = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    spec = {"securityContext": context, "containers": [{"name": "a", "image": "a", "securityContext": limits}]}
    eventually(lambda: "not in the range" in answer(site, spec), what="the policy is in force", within_s=60)
    yield site
    Kubectl(plane.kubeconfig)("delete", "-f", str(POLICY))
    site.close()


@pytest.mark.parametrize("values", [{}, FIXED, METRICS], ids=["defaults", "fixed users", "a mounted certificate"])
def test_every_pod_of_the_chart_is_admitted(project: Site, values: dict[str, Any]) -> None:
    assert refusals(project, {**values, "platform": "openshift"}) == [""] * 5


def test_without_the_platform_a_fixed_user_is_refused(project: Site) -> None:
    found = refusals(project, FIXED)
    assert ["runAsUser is not in the range of the namespace" in each for each in found] == [True] * 5
