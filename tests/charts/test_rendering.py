"""The objects that the chart renders from its values, by `helm template`."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.apimachinery.names import is_subdomain
from controller.config.modes import Mode
from controller.config.settings import Config
from controller.version import version
from tests.command_line import parse
from tests.helm import REGISTRY, RUNBOOK, Helm, container, of_kind, only, run_flags
from tools.chart.generated import CHART
from tools.chart.helm import MAJORS
from tools.chart.schema import read_values

KUBEVIRT = "kubevirt.io/v1/KubeVirt"
VALUES = {value.name: value.default for value in read_values((CHART / "values.yaml").read_text())}

COMPARED: tuple[dict[str, Any], ...] = (
    {},
    {"mode": "takeover", "hooks": {"takeover": {"enabled": True}, "cleanup": {"enabled": True}}},
    {"mode": "alongside", "watchNamespaces": ["team-a"], "observe": True},
    {
        "networkPolicy": {"enabled": True},
        "metrics": {
            "secure": {"enabled": True, "certificateSecret": "certificate"},
            "dashboards": {"enabled": True},
            "serviceMonitor": {"enabled": True},
            "prometheusRule": {"enabled": True, "alerts": {"VmherdDown": {"threshold": 2, "for": "1m"}}},
        },
    },
    {"platform": "openshift", "extraArgs": ["--workers={{ add 2 3 }}"], "global": {"imageRegistry": "r.example.com"}},
)


def settings(objects: list[dict[str, Any]]) -> Config:
    return parse(run_flags(container(objects)["args"]), {}, pod_namespace="vmherd")


@pytest.mark.parametrize("values", COMPARED, ids=str)
def test_both_versions_of_helm_render_the_same_objects(values: dict[str, Any], tmp_path: Path) -> None:
    """The other tests of rendering run only the newest Helm."""
    rendered = [Helm(each, tmp_path / str(each)).render(values) for each in MAJORS]
    assert rendered[0] == rendered[1] != []


NO_QUANTITY = {"resources": {"limits": {"memory": "64MB"}}}
REFUSED = ({"replicacount": 2}, {"mode": "auto"}, {"metrics": {"port": "x"}}, NO_QUANTITY, {"hooks": NO_QUANTITY})


@pytest.mark.parametrize("values", REFUSED, ids=str)
def test_both_versions_of_helm_refuse_the_same_values(values: dict[str, Any], tmp_path: Path) -> None:
    assert all(Helm(each, tmp_path / str(each)).refusal(values) for each in MAJORS)


@pytest.mark.parametrize("major", MAJORS, indirect=True)
@pytest.mark.parametrize("mode", ["auto", "standalone", "takeover", "alongside"])
def test_the_linter_reports_no_problem(helm: Helm, mode: str) -> None:
    said = helm("lint", "--strict", str(CHART), values={"mode": mode, "networkPolicy": {"enabled": True}}).stdout
    assert "[WARNING]" not in said
    assert "0 chart(s) failed" in said


@pytest.mark.parametrize("kinds", [(), ("apps/v1/Deployment",), ("apps/v1/Deployment", KUBEVIRT)])
def test_without_a_connection_to_a_cluster_the_mode_auto_is_refused(helm: Helm, kinds: tuple[str, ...]) -> None:
    said = helm.refusal({"mode": "auto"}, kinds=kinds)
    assert "Helm cannot ask the cluster" in said
    assert all(f"--set mode={mode} " in said for mode in ("standalone", "alongside", "takeover"))


def test_alongside_the_kinds_have_their_own_short_names_and_groups(helm: Helm) -> None:
    objects = helm.render({"mode": "alongside"})
    definitions = [crd["spec"] for crd in of_kind(objects, "CustomResourceDefinition")]
    ours = {(crd["group"], crd["names"]["plural"]): crd["names"]["shortNames"] for crd in definitions}
    assert ours == {
        ("vmherd.dev", "virtualmachineinstancereplicasets"): ["hvmirs", "hvmirss"],
        ("pool.vmherd.dev", "virtualmachinepools"): ["hvmpool", "hvmpools"],
    }
    versions = [version for spec in definitions for version in spec["versions"]]
    usual = [[each["name"] for each in one["additionalPrinterColumns"] if not each.get("priority")] for one in versions]
    assert usual == [["Desired", "Current", "Ready", "Age", "Status"]] * len(versions)
    rules = [rule for role in of_kind(objects, "ClusterRole") for rule in role["rules"]]
    asked = {
        (group, each.partition("/")[0]) for rule in rules for group in rule["apiGroups"] for each in rule["resources"]
    }
    assert {(group, each) for group, each in asked if each in {plural for _, plural in ours}} == ours.keys()
    assert ("kubevirt.io", "virtualmachines") in asked


def test_a_long_name_is_cut_to_a_valid_name(helm: Helm) -> None:
    objects = helm.render({"fullnameOverride": f"{'x' * 51}.example"})
    assert all(is_subdomain(each["metadata"]["name"]) for each in objects)


POLICY = "ValidatingAdmissionPolicy"


def test_the_policies_check_the_kinds_of_the_mode_in_the_watched_namespaces(helm: Helm) -> None:
    objects = helm.render({"mode": "alongside", "watchNamespaces": ["team-a"]})
    rules = [policy["spec"]["matchConstraints"]["resourceRules"][0] for policy in of_kind(objects, POLICY)]
    assert {(*rule["apiGroups"], *rule["resources"]) for rule in rules} == {
        ("vmherd.dev", "virtualmachineinstancereplicasets"),
        ("pool.vmherd.dev", "virtualmachinepools"),
        ("kubevirt.io", "virtualmachines"),
        ("kubevirt.io", "virtualmachineinstances"),
    }
    bindings = [binding["spec"] for binding in of_kind(objects, f"{POLICY}Binding")]
    assert sorted(binding["validationActions"] for binding in bindings) == [["Deny"]] * 2 + [["Warn"]] * 4
    names = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["team-a"]}
    assert all(each["matchResources"] == {"namespaceSelector": {"matchExpressions": [names]}} for each in bindings)


def test_the_policies_are_left_out_if_they_are_off_or_the_cluster_lacks_the_api(helm: Helm) -> None:
    assert of_kind(helm.render({"annotationPolicies": {"enabled": False}}), POLICY) == []
    cluster = ("apps/v1/Deployment",)
    assert of_kind(helm.render(kinds=cluster), POLICY) == []
    assert len(of_kind(helm.render(kinds=(*cluster, f"admissionregistration.k8s.io/v1/{POLICY}")), POLICY)) == 6


def test_definitions_are_kept_unless_the_values_say_otherwise(helm: Helm) -> None:
    def policies(values: Mapping[str, Any]) -> set[str | None]:
        definitions = of_kind(helm.render(values), "CustomResourceDefinition")
        return {crd["metadata"].get("annotations", {}).get("helm.sh/resource-policy") for crd in definitions}

    assert policies({}) == {"keep"}
    assert policies({"crds": {"keep": False}}) == {None}
    assert policies({"crds": {"enabled": False}}) == set()


def test_watched_namespaces_get_roles_and_the_cluster_gets_none(helm: Helm) -> None:
    objects = helm.render({"watchNamespaces": ["team-a", "team-b"]})
    assert of_kind(objects, "ClusterRole") + of_kind(objects, "ClusterRoleBinding") == []
    names = {(role["metadata"]["namespace"], role["metadata"]["name"]) for role in of_kind(objects, "Role")}
    people = {(team, f"vmherd-{who}") for team in ("team-a", "team-b") for who in ("view", "edit", "admin", "budgets")}
    assert names == {("team-a", "vmherd"), ("team-b", "vmherd"), ("vmherd", "vmherd-lease")} | people
    for binding in of_kind(objects, "RoleBinding"):
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "vmherd", "namespace": "vmherd"}]
    assert settings(objects).watch_namespaces == ("team-a", "team-b")


def test_the_arguments_are_the_programs_own_defaults(helm: Helm) -> None:
    """Only the chart can give the permissions that budgets need, so only the chart keeps them by default."""
    chart = {"mode": "standalone", "leader_election_namespace": "vmherd", "in_pod": True, "disruption_budgets": True}
    defaults = {field: getattr(Config(), field) for field in Config.__struct_fields__}
    objects = helm.render()
    found = settings(objects)
    assert "command" not in container(objects)
    assert {field: getattr(found, field) for field in Config.__struct_fields__} == {**defaults, **chart}


def test_every_setting_reaches_the_program(helm: Helm) -> None:
    found = settings(
        helm.render(
            {
                "mode": "alongside",
                "observe": True,
                "secondWriterCheck": {"enabled": False, "kubevirtNamespace": "kubevirt"},
                "watchNamespaces": ["team-a"],
                "leaderElection": {"id": "mine", "leaseDuration": "30s", "renewDeadline": "20s", "retryPeriod": "3s"},
                "terminationGracePeriodSeconds": 90,
                "settings": {
                    "workers": 3,
                    "burst": 1000000 // 10,
                    "revisionHistory": 7,
                    "disruptionBudgets": True,
                    "migrations": True,
                    "syncTimeout": "5m",
                    "shutdownGrace": "1m",
                    "maxInflight": 60,
                    "maxReplicas": 500,
                    "debugEndpoints": True,
                },
                "logs": {"level": "debug", "format": "json"},
                "healthPort": 9001,
                "metrics": {
                    "port": 9002,
                    "objectMetrics": False,
                    "secure": {"enabled": True, "certificateSecret": "certificate"},
                },
            }
        )
    )
    untouched = {field for field in Config.__struct_fields__ if getattr(found, field) == getattr(Config(), field)}
    assert untouched == {"kubeconfig", "context", "leader_elect", "versions"}
    assert (found.burst, found.replicaset_group) == (100_000, "vmherd.dev")


def test_an_extra_argument_wins(helm: Helm) -> None:
    assert settings(helm.render({"extraArgs": ["--workers={{ add 2 3 }}"]})).workers == 5


@pytest.mark.parametrize(
    ("image", "said"),
    [
        ({}, f"{REGISTRY}/vmherd:{version()}"),
        ({"registry": "registry.example.com:5000", "tag": "2"}, "registry.example.com:5000/vmherd:2"),
        ({"repository": "a/b", "tag": "2", "digest": "sha256:" + "0" * 64}, f"{REGISTRY}/a/b@sha256:" + "0" * 64),
    ],
)
def test_the_image_is_named_by_tag_or_by_digest(helm: Helm, image: dict[str, str], said: str) -> None:
    assert container(helm.render({"image": image}))["image"] == said


def test_all_selectors_match_the_pods(helm: Helm) -> None:
    objects = helm.render(
        {
            "networkPolicy": {"enabled": True},
            "metrics": {"serviceMonitor": {"enabled": True}},
            "commonLabels": {"team": "a"},
            "podLabels": {"app.kubernetes.io/name": "stranger"},
        }
    )
    deployment = only(objects, "Deployment")["spec"]
    labels = deployment["template"]["metadata"]["labels"]
    service = only(objects, "Service")
    selectors = [
        deployment["selector"]["matchLabels"],
        service["spec"]["selector"],
        only(objects, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        of_kind(objects, "NetworkPolicy")[0]["spec"]["podSelector"]["matchLabels"],
        *(each["labelSelector"]["matchLabels"] for each in deployment["template"]["spec"]["topologySpreadConstraints"]),
    ]
    for selector in selectors:
        assert selector.items() <= labels.items()
    test = only(objects, "Pod")["metadata"]["labels"]
    assert not selectors[0].items() <= test.items(), "the test's Pod is none of the controller's"
    monitor = only(objects, "ServiceMonitor")["spec"]
    assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert monitor["namespaceSelector"] == {"matchNames": ["vmherd"]}
    assert labels["team"] == "a"


def test_a_monitor_scrapes_the_port_that_the_program_listens_at(helm: Helm) -> None:
    more = {"enableHttp2": False}
    monitor = {"enabled": True, "interval": "15s", "labels": {"release": "p"}, "endpointAdditionalProperties": more}
    objects = helm.render({"metrics": {"port": 9002, "podMonitor": monitor}})
    monitor = only(objects, "PodMonitor")
    [endpoint] = monitor["spec"]["podMetricsEndpoints"]
    assert endpoint == {"port": "metrics", "path": "/metrics", "interval": "15s", "honorLabels": True, **more}
    assert {"name": "metrics", "containerPort": 9002, "protocol": "TCP"} in container(objects)["ports"]
    assert monitor["metadata"]["labels"]["release"] == "p"


def test_the_rendered_alerts_and_dashboards_equal_the_files(helm: Helm) -> None:
    objects = helm.render({"metrics": {"prometheusRule": {"enabled": True}, "dashboards": {"enabled": True}}})
    rule, [dashboards] = only(objects, "PrometheusRule"), of_kind(objects, "ConfigMap")
    alerts, recordings = (
        yaml.safe_load((CHART / "files" / name).read_text()) for name in ("alerts.yaml", "recordings.yaml")
    )
    for alert in (alert for group in alerts["groups"] for alert in group["rules"]):
        alert["annotations"]["runbook_url"] = f"{RUNBOOK}#{alert['alert'].lower()}"
    assert rule["spec"]["groups"] == alerts["groups"] + recordings["groups"]
    assert dashboards["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert dashboards["data"] == {
        f"vmherd-{name}.json": (CHART / "files" / "dashboards" / f"{name}.json").read_text()
        for name in ("controller", "fleet")
    }
    plain = helm.render({})
    assert not of_kind(plain, "PrometheusRule")
    assert not of_kind(plain, "ConfigMap")


def test_disabled_features_render_no_objects(helm: Helm) -> None:
    objects = helm.render(
        {
            "crds": {"enabled": False},
            "rbac": {"create": False, "userRoles": "none"},
            "serviceAccount": {"create": False, "name": "theirs"},
            "podDisruptionBudget": {"enabled": False},
            "metrics": {"enabled": False},
            "annotationPolicies": {"enabled": False},
        }
    )
    assert [each["kind"] for each in objects] == ["Deployment"]
    assert only(objects, "Deployment")["spec"]["template"]["spec"]["serviceAccountName"] == "theirs"
    assert settings(objects).metrics_bind_address is None


def test_extra_values_are_rendered_without_changes(helm: Helm) -> None:
    volume, alias = {"name": "ca", "configMap": {"name": "ca"}}, {"ip": "192.0.2.1", "hostnames": ["api.example.com"]}
    objects = helm.render(
        {
            "extraEnv": [{"name": "SSL_CERT_FILE", "value": "/{{ .Chart.Name }}/ca.crt"}],
            "extraVolumes": [volume],
            "extraVolumeMounts": [{"name": "ca", "mountPath": "/ca"}],
            "extraObjects": [
                {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "{{ .Release.Name }}-extra"}}
            ],
            "tolerations": [{"operator": "Exists"}],
            "hostAliases": [alias],
            "global": {"priorityClassName": "system-cluster-critical"},
            "minReadySeconds": 30,
            "commonAnnotations": {"note": "x"},
        }
    )
    pod = only(objects, "Deployment")["spec"]["template"]["spec"]
    assert (pod["volumes"], pod["hostAliases"]) == ([volume], [alias])
    assert container(objects)["env"] == [{"name": "SSL_CERT_FILE", "value": "/vmherd/ca.crt"}]
    assert only(objects, "Deployment")["spec"]["minReadySeconds"] == 30
    assert (pod["tolerations"], pod["priorityClassName"]) == ([{"operator": "Exists"}], "system-cluster-critical")
    assert only(objects, "ConfigMap")["metadata"]["name"] == "vmherd-extra"
    ours = [each for each in objects if each["kind"] != "ConfigMap"]
    assert all(each["metadata"]["annotations"]["note"] == "x" for each in ours)


def test_the_modes_of_the_chart_are_those_of_the_program() -> None:
    assert VALUES["mode"] == Mode.AUTO


ON = {"enabled": True}
MONITORING = dict.fromkeys(("serviceMonitor", "prometheusRule", "dashboards"), ON)
BASE: dict[str, Any] = {
    "mode": "takeover",
    "image": {"registry": "registry.example.com"},
    "settings": {"migrations": True},
    "hooks": {"takeover": ON, "cleanup": ON},
    "networkPolicy": ON,
    "metrics": {"secure": {"enabled": True, "certManager": ON}, **MONITORING},
}
"""Values with which every template renders objects."""


@pytest.mark.parametrize("major", MAJORS, indirect=True)
@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_every_value_and_section_that_is_null_renders_as_its_default(helm: Helm, depth: int) -> None:
    given = json.loads(json.dumps(BASE))  # shares no section
    for path in {tuple(name.split(".")[:depth]) for name in VALUES if name.count(".") >= depth - 1}:
        section = given
        for name in path[:-1]:
            section = section.setdefault(name, {})
        section.setdefault(path[-1], None)
    assert given != BASE
    assert helm.render(given) == helm.render(BASE)


def test_each_template_begins_with_the_defaults() -> None:
    """Helm promises no order of the templates."""
    for path in (*(CHART / "templates").rglob("*.yaml"), CHART / "templates" / "NOTES.txt"):
        assert '{{- include "vmherd.defaults" . }}' in path.read_text().splitlines()[:2], path


SERVER = "vmherd-metrics.vmherd.svc"


@pytest.mark.parametrize("kind", ["ServiceMonitor", "PodMonitor"])
def test_a_monitor_has_the_token_of_an_account_that_may_only_get_metrics(helm: Helm, kind: str) -> None:
    monitor = {f"{kind[0].lower()}{kind[1:]}": {"enabled": True, "namespace": "monitoring"}}
    objects = helm.render({"metrics": {"secure": {"enabled": True}, **monitor}})
    [endpoint] = only(objects, kind)["spec"]["endpoints" if kind == "ServiceMonitor" else "podMetricsEndpoints"]
    secret = only(objects, "Secret")
    assert (endpoint["tlsConfig"], "bearerTokenFile" in endpoint) == ({"insecureSkipVerify": True}, False)
    assert "volumes" not in only(objects, "Deployment")["spec"]["template"]["spec"]
    assert endpoint["authorization"] == {"credentials": {"name": secret["metadata"]["name"], "key": "token"}}
    assert (secret["type"], secret["metadata"]["namespace"]) == ("kubernetes.io/service-account-token", "monitoring")
    account = secret["metadata"]["annotations"]["kubernetes.io/service-account.name"]
    bound = [each for each in of_kind(objects, "ClusterRoleBinding") if each["subjects"][0]["name"] == account]
    assert [each["roleRef"]["name"] for each in bound] == ["vmherd-metrics-reader"]
    [reader] = [each for each in of_kind(objects, "ClusterRole") if each["metadata"]["name"] == "vmherd-metrics-reader"]
    assert reader["rules"] == [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]
    assert {"name": account, "namespace": "monitoring"}.items() <= bound[0]["subjects"][0].items()


@pytest.mark.parametrize("issuer", [{}, {"kind": "ClusterIssuer", "name": "internal"}])
def test_cert_manager_issues_the_certificate_that_a_monitor_verifies(helm: Helm, issuer: dict[str, str]) -> None:
    secure = {"enabled": True, "certManager": {"enabled": True, "issuerRef": issuer}}
    values = {"metrics": {"secure": secure, "serviceMonitor": {"enabled": True}}}
    objects = helm.render(values)
    spec = only(objects, "Certificate")["spec"]
    assert spec["dnsNames"] == [SERVER]
    made = [{"kind": each["kind"], "name": each["metadata"]["name"]} for each in of_kind(objects, "Issuer")]
    assert (made, spec["issuerRef"]) == (([], issuer) if issuer else ([spec["issuerRef"]], spec["issuerRef"]))
    [volume] = only(objects, "Deployment")["spec"]["template"]["spec"]["volumes"]
    assert volume["secret"]["secretName"] == spec["secretName"]
    [endpoint] = only(objects, "ServiceMonitor")["spec"]["endpoints"]
    assert endpoint["tlsConfig"]["ca"] == {"secret": {"name": spec["secretName"], "key": "ca.crt"}}
    assert "has no cert-manager" in helm.refusal(values, kinds=("apps/v1/Deployment",))
