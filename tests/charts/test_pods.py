"""The Pods of the chart: images, networks, accounts, platforms, and the Jobs of hooks."""

from typing import Any

import pytest

from controller.version import version
from tests.helm import Helm, of_kind, only

OPENSHIFT = "security.openshift.io/v1"
USERS = {"runAsUser": 65532, "runAsGroup": 65532, "fsGroup": 65532, "supplementalGroups": [65532]}
HOOKS = {"mode": "takeover", "hooks": {"takeover": {"enabled": True}, "cleanup": {"enabled": True}}}


def pod_specs(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The specs of all five Pods with HOOKS: of the controller, the Jobs and the test."""
    made = [each["spec"]["template"]["spec"] for each in (*of_kind(objects, "Deployment"), *of_kind(objects, "Job"))]
    specs = [*made, *(each["spec"] for each in of_kind(objects, "Pod"))]
    assert len(specs) == 5
    return specs


def controller(objects: list[dict[str, Any]]) -> dict[str, Any]:
    return dict(only(objects, "Deployment")["spec"]["template"]["spec"])


def test_all_pods_have_the_global_registry_and_all_pull_secrets(helm: Helm) -> None:
    shared = {"imageRegistry": "mirror.example.com", "imagePullSecrets": ["shared", {"name": "pull"}], "other": 1}
    given = {"image": {"registry": "registry.example.com"}, "imagePullSecrets": [{"name": "pull"}, "own"]}
    for spec in pod_specs(helm.render({**HOOKS, **given, "global": shared})):
        assert spec["imagePullSecrets"] == [{"name": name} for name in ("shared", "pull", "own")]
        assert {each["image"] for each in spec["containers"]} == {f"mirror.example.com/vmherd:{version()}"}


def test_on_openshift_no_pod_has_a_fixed_user_or_group(helm: Helm) -> None:
    users = {**HOOKS, "podSecurityContext": USERS, "securityContext": {"runAsUser": 65532, "runAsGroup": 65532}}
    for values, kinds in (({"platform": "openshift"}, ()), ({}, (OPENSHIFT,))):
        for spec in pod_specs(helm.render({**users, **values}, kinds=kinds)):
            contexts = [spec["securityContext"], *(each["securityContext"] for each in spec["containers"])]
            assert not any(USERS.keys() & context.keys() for context in contexts)
            assert contexts[0]["runAsNonRoot"] is True
            assert contexts[1]["allowPrivilegeEscalation"] is False
    for values, kinds in (({}, ()), ({"platform": "kubernetes"}, (OPENSHIFT,))):
        for spec in pod_specs(helm.render({**users, **values}, kinds=kinds)):
            assert spec["securityContext"].items() >= USERS.items()
            assert spec["containers"][0]["securityContext"]["runAsUser"] == 65532


@pytest.mark.parametrize(
    ("values", "policy"),
    [
        ({}, None),
        ({"hostNetwork": True}, "ClusterFirstWithHostNet"),
        ({"hostNetwork": True, "dnsPolicy": "Default"}, "Default"),
        ({"dnsPolicy": "None", "dnsConfig": {"nameservers": ["192.0.2.1"]}}, "None"),
    ],
)
def test_a_pod_in_the_network_of_its_node_resolves_services(
    helm: Helm, values: dict[str, Any], policy: str | None
) -> None:
    spec = controller(helm.render(values))
    assert spec.get("dnsPolicy") == policy
    assert spec.get("hostNetwork", False) is values.get("hostNetwork", False)
    assert spec.get("dnsConfig") == values.get("dnsConfig")


def test_all_pods_go_to_the_nodes_of_all_charts_and_of_this_chart(helm: Helm) -> None:
    shared, own = {"key": "infra", "operator": "Exists"}, {"key": "own", "operator": "Exists"}
    labels, affinity = {"zone": "a", "infra": "yes"}, {"podAffinity": {}}
    everywhere = {"nodeSelector": labels, "tolerations": [shared], "affinity": affinity}
    given = {"nodeSelector": {"zone": "b"}, "tolerations": [own], "schedulerName": "mine", "hostUsers": False}
    for spec in pod_specs(helm.render({**HOOKS, **given, "global": everywhere})):
        assert spec["nodeSelector"] == {"kubernetes.io/os": "linux", "zone": "b", "infra": "yes"}
        assert spec["tolerations"] == [shared, own]
        assert (spec["schedulerName"], spec["hostUsers"]) == ("mine", False)
    assert controller(helm.render({"global": everywhere}))["affinity"] == affinity
    replaced = {"global": everywhere, "affinity": {"nodeAffinity": {}}}
    assert controller(helm.render(replaced))["affinity"] == {"nodeAffinity": {}}


def test_only_the_pods_of_the_chart_get_a_token(helm: Helm) -> None:
    objects = helm.render({})
    assert only(objects, "ServiceAccount")["automountServiceAccountToken"] is False
    assert controller(objects)["automountServiceAccountToken"] is True
    objects = helm.render({"serviceAccount": {"automount": True}, "automountServiceAccountToken": False})
    assert only(objects, "ServiceAccount")["automountServiceAccountToken"] is True
    assert controller(objects)["automountServiceAccountToken"] is False


@pytest.mark.parametrize(
    ("budget", "rendered"),
    [
        ({}, {"maxUnavailable": 1}),
        ({"minAvailable": 1}, {"minAvailable": 1}),
        ({"minAvailable": 0}, {"minAvailable": 0}),
        ({"minAvailable": "50%", "maxUnavailable": 2}, {"minAvailable": "50%"}),
    ],
)
def test_the_disruption_budget_has_one_of_both_limits(
    helm: Helm, budget: dict[str, Any], rendered: dict[str, Any]
) -> None:
    spec = only(helm.render({"podDisruptionBudget": budget}), "PodDisruptionBudget")["spec"]
    assert {name: spec[name] for name in ("maxUnavailable", "minAvailable") if name in spec} == rendered


def test_the_jobs_run_commands_of_the_image_with_their_own_accounts(helm: Helm) -> None:
    assert of_kind(helm.render({"mode": "takeover"}), "Job") == [], "without hooks there are no Jobs"
    objects = helm.render(HOOKS)
    jobs = {job["metadata"]["name"]: job for job in of_kind(objects, "Job")}
    lease = ["--leader-election-id=vmherd", "--leader-election-namespace=vmherd"]
    assert {name: job["spec"]["template"]["spec"]["containers"][0]["args"] for name, job in jobs.items()} == {
        "vmherd-kv-stop": ["takeover"],
        "vmherd-kv-start": ["takeover", "--undo", *lease],
        "vmherd-cleanup": ["cleanup", "--mode=takeover", *lease],
    }
    events = {name: job["metadata"]["annotations"]["helm.sh/hook"] for name, job in jobs.items()}
    assert events == {
        "vmherd-kv-stop": "pre-install,pre-upgrade",
        "vmherd-kv-start": "post-delete",
        "vmherd-cleanup": "post-delete",
    }
    for name, job in jobs.items():
        own = [each for each in objects if each["metadata"]["name"] == name and each is not job]
        assert {each["kind"] for each in own} >= {"ServiceAccount", "ClusterRole", "ClusterRoleBinding"}
        for each in own:
            annotations = each["metadata"]["annotations"]
            assert annotations["helm.sh/hook"] == events[name]
            first, then = (int(meta["helm.sh/hook-weight"]) for meta in (annotations, job["metadata"]["annotations"]))
            assert first < then, "the account exists before its Job"
        assert job["spec"]["template"]["spec"]["serviceAccountName"] == name
        selector = only(objects, "Deployment")["spec"]["selector"]["matchLabels"]
        assert not selector.items() <= job["spec"]["template"]["metadata"]["labels"].items()


def test_the_jobs_get_roles_only_in_the_given_namespaces(helm: Helm) -> None:
    values = {**HOOKS, "watchNamespaces": ["team-a", "vmherd"], "secondWriterCheck": {"kubevirtNamespace": "kubevirt"}}
    objects = helm.render(values)
    assert of_kind(objects, "ClusterRole") == []
    places: dict[str, list[str]] = {}
    for role in of_kind(objects, "Role"):
        places.setdefault(role["metadata"]["name"], []).append(role["metadata"]["namespace"])
    assert places["vmherd-kv-stop"] == ["kubevirt"]
    assert sorted(places["vmherd-kv-start"]) == ["kubevirt", "vmherd"]
    assert sorted(places["vmherd-cleanup"]) == ["team-a", "vmherd"]
    [cleanup] = [job for job in of_kind(objects, "Job") if job["metadata"]["name"] == "vmherd-cleanup"]
    assert "--watch-namespaces=team-a,vmherd" in cleanup["spec"]["template"]["spec"]["containers"][0]["args"]


def test_a_network_policy_lets_each_job_reach_only_dns_and_the_api_server(helm: Helm) -> None:
    policy = {"enabled": True, "apiServerPorts": [6443], "extraEgress": [{"to": [{"podSelector": {}}]}]}
    objects = helm.render({**HOOKS, "networkPolicy": policy})
    policies = {each["metadata"]["name"]: each for each in of_kind(objects, "NetworkPolicy")}
    for job in of_kind(objects, "Job"):
        found = policies[job["metadata"]["name"]]
        assert found["metadata"]["annotations"]["helm.sh/hook"] == job["metadata"]["annotations"]["helm.sh/hook"]
        labels = job["spec"]["template"]["metadata"]["labels"]
        assert found["spec"]["podSelector"]["matchLabels"].items() <= labels.items()
        assert found["spec"]["egress"] == policies["vmherd"]["spec"]["egress"]
        assert "ingress" not in found["spec"]
    assert [rule["ports"][0]["port"] for rule in policies["vmherd"]["spec"]["egress"] if "ports" in rule] == [53, 6443]


def test_a_network_policy_always_allows_the_test_pod_to_reach_the_metrics(helm: Helm) -> None:
    scraper = {"namespaceSelector": {"matchLabels": {"monitoring": "here"}}}
    objects = helm.render({"networkPolicy": {"enabled": True, "metricsFrom": [scraper]}, "metrics": {"port": 9002}})
    policies = {each["metadata"]["name"]: each["spec"] for each in of_kind(objects, "NetworkPolicy")}
    pod = only(objects, "Pod")["metadata"]
    assert policies["vmherd-test"]["podSelector"]["matchLabels"].items() <= pod["labels"].items()
    assert "ingress" not in policies["vmherd-test"]
    names, metrics = policies["vmherd-test"]["egress"]
    assert {port["port"] for port in names["ports"]} == {53}
    assert metrics["ports"] == [{"port": 9002, "protocol": "TCP"}]
    assert metrics["to"] == [{"podSelector": policies["vmherd"]["podSelector"]}]
    [allowed] = [rule["from"] for rule in policies["vmherd"]["ingress"] if rule["ports"][0]["port"] == 9002]
    assert allowed == [scraper, {"podSelector": policies["vmherd-test"]["podSelector"]}]
    without = helm.render({"networkPolicy": {"enabled": True, "metricsFrom": [scraper]}, "tests": {"enabled": False}})
    [rule] = [rule for rule in only(without, "NetworkPolicy")["spec"]["ingress"] if "from" in rule]
    assert rule["from"] == [scraper]
