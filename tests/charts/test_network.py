"""The connections that the chart's network policies allow."""

from tests.helm import Helm, of_kind, only


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
