"""Metrics over HTTPS: the token of the scraper, and certificates of cert-manager. test_scraping.py shows the rest."""

import pytest

from tests.helm import Helm, of_kind, only

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
