"""Metrics over HTTPS: the certificate, the token of the scraper, and the permissions."""

import pytest

from tests.charts.test_rendering import settings
from tests.helm import Helm, container, of_kind, only

SERVER = "vmherd-metrics.vmherd.svc"


def test_secure_metrics_come_with_a_certificate_and_the_permission_for_access_reviews(helm: Helm) -> None:
    secure = {"enabled": True, "certificateSecret": "certificate"}
    objects = helm.render({"metrics": {"secure": secure, "serviceMonitor": {"enabled": True}}})
    found = settings(objects)
    [mount] = container(objects)["volumeMounts"]
    assert found.metrics_secure
    assert (found.metrics_cert_file, found.metrics_key_file) == tuple(
        f"{mount['mountPath']}/{file}" for file in ("tls.crt", "tls.key")
    )
    assert only(objects, "Deployment")["spec"]["template"]["spec"]["volumes"] == [
        {"name": mount["name"], "secret": {"secretName": "certificate"}}
    ]
    roles = {role["metadata"]["name"]: role["rules"] for role in of_kind(objects, "ClusterRole")}
    assert [rule["resources"] for rule in roles["vmherd-scrapes"]] == [["tokenreviews"], ["subjectaccessreviews"]]
    assert roles["vmherd-metrics-reader"] == [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]
    [endpoint] = only(objects, "ServiceMonitor")["spec"]["endpoints"]
    assert endpoint["scheme"] == "https"
    assert endpoint["tlsConfig"] == {"serverName": SERVER}


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
