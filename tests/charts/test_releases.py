"""A release on the real API server: no warnings, and the objects after an upgrade and after an uninstallation."""

import json
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from controller.takeover.virt_controller import stop_patch
from sandbox.controlplane import ControlPlane
from tests.charts.releases import KUBEVIRTS, NO_WAIT, Site
from tests.charts.test_people import may
from tests.cluster import Kubectl
from tests.controlplane.documents import open_definition
from tests.controlplane.waits import eventually
from tests.helm import Helm
from tests.manifests.documents import SOUND, SOUND_POOL
from tools.chart.generated import CHART, ROOT
from tools.chart.helm import MAJORS

pytestmark = [pytest.mark.cluster, pytest.mark.e2e]

EVERYTHING = {
    "networkPolicy": {
        "enabled": True,
        "metricsFrom": [{"namespaceSelector": {}}],
        "apiServerTo": [{"ipBlock": {"cidr": "10.0.0.1/32"}}],
        "extraEgress": [{"to": [{"podSelector": {}}]}],
        "extraIngress": [{"from": [{"podSelector": {}}]}],
    },
    "imagePullSecrets": [{"name": "pull"}],
    "extraEnv": [{"name": "A", "value": "b"}],
    "extraEnvFrom": [{"secretRef": {"name": "more", "optional": True}}],
    "extraVolumes": [{"name": "tmp", "emptyDir": {}}],
    "extraVolumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    "tolerations": [{"operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "topologySpreadConstraints": [
        {"maxSkew": 2, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule"}
    ],
    "priorityClassName": "system-cluster-critical",
    "dnsPolicy": "ClusterFirst",
    "podAnnotations": {"a": "b"},
    "commonLabels": {"team": "a"},
    "podDisruptionBudget": {"maxUnavailable": "50%"},
    "schedulerName": "default-scheduler",
    "hostUsers": False,
    "metrics": {
        "secure": {"enabled": True, "certificateSecret": "certificate"},
        "service": {"ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack"},
    },
}


def at(mode: str, site: Site) -> dict[str, Any]:
    """The chart's values for this mode. If the mode needs the kind KubeVirt, install the definition of this kind."""
    if mode in ("takeover", "alongside"):
        site.kubectl.apply(open_definition("KubeVirt", KUBEVIRTS, "v1"))
        eventually(lambda: KUBEVIRTS in site.served(), what="the kind KubeVirt is served")
    return {"mode": mode}


def image_of(site: Site) -> str:
    [container] = site.deployment()["spec"]["template"]["spec"]["containers"]
    return str(container["image"])


@pytest.mark.parametrize(
    ("mode", "values"),
    [("standalone", {}), *((mode, EVERYTHING) for mode in ("standalone", "takeover", "alongside"))],
    ids=["defaults", "standalone", "takeover", "alongside"],
)
def test_the_api_server_knows_every_field_and_warns_of_none(site: Site, mode: str, values: dict[str, Any]) -> None:
    rendered = site.helm.render({**at(mode, site), **values})
    assert site.dry_run(rendered) == (len(rendered), "")


@pytest.mark.parametrize(
    ("major", "mode", "watched"),
    [
        (MAJORS[0], "standalone", False),
        (MAJORS[-1], "standalone", True),
        (MAJORS[-1], "takeover", True),
        (MAJORS[-1], "alongside", False),
    ],
    indirect=["major"],
)
def test_a_release_can_be_upgraded_rolled_back_and_uninstalled(site: Site, mode: str, *, watched: bool) -> None:
    values = at(mode, site) | ({"watchNamespaces": [site.namespace]} if watched else {})
    said = site.install(**values)
    assert f"installed in {mode} mode" in said
    names = {(each["kind"], each["metadata"]["name"]) for each in site.objects()}
    site.upgrade(**values, replicaCount=3)
    assert site.deployment()["spec"]["replicas"] == 3
    site.helm("rollback", "vmherd", "1")
    assert site.deployment()["spec"]["replicas"] == 2
    assert {(each["kind"], each["metadata"]["name"]) for each in site.objects()} == names
    shipped = site.definitions()
    assert len(shipped) == (0 if mode == "takeover" else 2)
    site.helm("uninstall", "vmherd")
    left = [
        site.kubectl("get", kind, name, check=False).returncode for kind, name in sorted(names) if "Custom" not in kind
    ]
    assert set(left) == {1}, "nothing of it is left"
    assert site.definitions() == shipped, "but for the definitions"


def test_the_takeover_command_in_the_notes_has_the_effect_of_vmherd_takeover(site: Site) -> None:
    said = site.install(**at("takeover", site))
    typed = shlex.split(said[said.index("kubectl patch kubevirt") :].partition("`vmherd takeover`")[0])
    site.kubectl.apply(
        {"apiVersion": "kubevirt.io/v1", "kind": "KubeVirt", "metadata": {"name": "kubevirt"}, "spec": {}}
    )
    assert typed[4:6] == ["-n", "kubevirt"]
    site.kubectl(*typed[1:4], *typed[6:])
    [patch] = site.kubectl.json("get", "kubevirt", "kubevirt")["spec"]["customizeComponents"]["patches"]
    ours = json.loads(msgspec.json.encode(stop_patch()))
    assert {**patch, "patch": json.loads(patch["patch"])} == {**ours, "patch": json.loads(ours["patch"])}


def test_an_upgrade_from_an_older_chart_upgrades_the_definitions_and_the_program(site: Site, tmp_path: Path) -> None:
    older = shutil.copytree(CHART, tmp_path / "vmherd")
    for path in (older / "files" / "crds").iterdir():
        path.write_text(path.read_text().replace("minimum: 0", "minimum: 1"))
    values = yaml.safe_load((older / "values.yaml").read_text())
    del values["tests"]
    (older / "values.yaml").write_text(yaml.safe_dump(values))
    for path in (older / "templates").rglob("*.*"):
        path.write_text(path.read_text().replace(".Values.tests.enabled", "false"))
    about = yaml.safe_load((older / "Chart.yaml").read_text())
    (older / "Chart.yaml").write_text(yaml.safe_dump({**about, "version": "0.0.9", "appVersion": "0.0.9"}))
    site.helm("install", "vmherd", str(older))
    assert image_of(site).endswith(":0.0.9")
    few = json.loads(json.dumps(SOUND))
    few["spec"]["replicas"] = 0
    assert site.kubectl("create", "-f", "-", stdin=few, check=False).returncode == 1
    # The newer templates read a section that the values of the older chart do not have.
    [flag] = re.findall(r"helm upgrade .* (--\S*reuse-values)", (ROOT / "docs" / "upgrading.md").read_text())
    site.helm("upgrade", "vmherd", str(CHART), *NO_WAIT[site.helm.major], flag)
    # The API server serves the new definition after a short delay.
    site.kubectl("wait", "--for=condition=Established", *(f"crd/{name}" for name in site.definitions()))
    assert site.kubectl("get", "crd", site.definitions()[0], "-o", "yaml").stdout.count("minimum: 0") >= 1
    assert image_of(site).endswith(f":{about['appVersion']}")
    site.helm("rollback", "vmherd")
    assert image_of(site).endswith(":0.0.9")


def test_auto_goes_alongside_a_kubevirt_keeps_this_mode_and_standalone_is_refused_there(site: Site) -> None:
    at("alongside", site)
    assert "mode=alongside" in site.refusal(mode="standalone")
    assert "installed in alongside mode" in site.install()
    assert all("vmherd.dev" in name for name in site.definitions())
    site.kubectl("get", "hvmirs,hvmpool")
    site.kubectl("delete", "crd", "kubevirts.kubevirt.io")
    site.upgrade()
    assert site.deployment()["metadata"]["annotations"]["vmherd.dev/mode"] == "alongside"


def test_a_takeover_without_kubevirt_is_refused_and_a_standalone_release_is_not_upgraded_under_a_kubevirt(
    site: Site,
) -> None:
    assert "no KubeVirt to take over from" in site.refusal(mode="takeover")
    site.install()
    at("alongside", site)
    done = site.helm("upgrade", "vmherd", str(CHART), check=False)
    assert "Its virt-controller also reconciles replica sets and pools" in done.stderr


def test_definitions_that_were_installed_without_helm_can_be_taken_over(site: Site) -> None:
    site.kubectl("apply", "-f", str(ROOT / "manifests" / "crds"))
    site.kubectl.apply(dict(SOUND), dict(SOUND_POOL))
    assert "invalid ownership metadata" in site.refusal()
    site.helm("install", "vmherd", str(CHART), *NO_WAIT[site.helm.major], "--take-ownership")
    assert len(site.definitions()) == 2
    assert len(site.kubectl("get", "vmirs,vmpool", "-o", "name").stdout.split()) == 2


def test_the_notes_warn_of_missing_kinds(site: Site) -> None:
    metrics = {"serviceMonitor": {"enabled": True}, "prometheusRule": {"enabled": True}}
    said = site.install(metrics=metrics)
    assert "does not have the kinds PrometheusRule, ServiceMonitor, so they are left out" in said
    assert not {each["kind"] for each in site.objects()} & {"PrometheusRule", "ServiceMonitor"}
    assert "auto does not change the mode of a release" in said
    assert "WARNING" not in site.upgrade()


def test_a_namespace_admin_can_install_the_release_if_the_definitions_exist(site: Site, tmp_path: Path) -> None:
    site.kubectl("apply", "-f", str(ROOT / "manifests" / "crds"))
    # The policies are objects of the cluster.
    own = {"crds": {"enabled": False}, "annotationPolicies": {"enabled": False}}
    values = {"watchNamespaces": [site.namespace], **own}
    # A user can grant only permissions that he has, so the cluster's admin grants them to the admin of the namespace.
    given = [rule for role in site.helm.render(values) if role["kind"] == "Role" for rule in role["rules"]]
    rbac = "rbac.authorization.k8s.io/v1"
    site.kubectl.apply({"apiVersion": rbac, "kind": "Role", "metadata": {"name": "given"}, "rules": given})
    site.kubectl("create", "rolebinding", "given", "--role=given", "--user=team")
    site.kubectl("create", "rolebinding", "team", "--clusterrole=admin", "--user=team")
    account = site.plane.write_kubeconfig(tmp_path / "team.kubeconfig", "team")
    member = Kubectl(account, site.namespace)
    eventually(lambda: may(member, "create", "deployments"), what="the roles are in force")
    team = Helm(site.helm.major, tmp_path / "team", kubeconfig=account, namespace=site.namespace)
    team("install", "vmherd", str(CHART), *NO_WAIT[site.helm.major], values=values)
    assert site.deployment()["spec"]["replicas"] == 2


@pytest.mark.parametrize("mode", ["standalone", "takeover", "alongside"])
def test_the_manifests_are_accepted_with_an_image_and_refused_without(plane: ControlPlane, mode: str) -> None:
    kubectl = Kubectl(plane.kubeconfig)
    folder = str(ROOT / "manifests" / mode.replace("standalone", ""))
    built = kubectl("kustomize", folder).stdout.replace('image: ""', "image: registry.example.com/vmherd:1")
    apply = ("apply", "--server-side", "--validate=strict")
    try:
        refused = kubectl(*apply, "-k", folder, check=False).stderr
        assert "spec.template.spec.containers[0].image: Required value" in refused
        assert kubectl(*apply, "-f", "-", stdin=built).stderr == ""
        deployment = kubectl("get", "deployment", "vmherd", "--namespace=vmherd-system", "-o", "yaml").stdout
        assert f"- --mode={mode}\n" in deployment
    finally:
        kubectl("delete", "-k", folder, "--ignore-not-found")
