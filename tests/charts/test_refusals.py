"""The values that the chart refuses, each with a message."""

from typing import Any

import pytest

from tests.helm import Helm, container


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"metrics": {"serviceMonitor": {"intervall": "1m"}}}, "intervall"),
        ({"mode": "alone"}, "mode"),
        ({"replicaCount": "two"}, "replicaCount"),
        ({"leaderElection": {"leaseDuration": "15"}}, "leaseDuration"),
        ({"leaderElection": {"leaseDuration": 15}}, "leaseDuration"),
        ({"watchNamespaces": "team-a"}, "watchNamespaces"),
        ({"watchNamespaces": ["Team_A"]}, "watchNamespaces"),
        ({"image": {"digest": "sha256:0"}}, "digest"),
        ({"podDisruptionBudget": {"maxUnavailable": "half"}}, "maxUnavailable"),
        ({"extraArgs": [1]}, "extraArgs"),
        ({"platform": "rancher"}, "platform"),
        ({"global": {"imageRegistry": 1}}, "imageRegistry"),
        ({"metrics": {"prometheusRule": {"alerts": {"VmherdDown": {"enable": False}}}}}, "enable"),
        ({"metrics": {"prometheusRule": {"runbookUrl": "runbooks"}}}, "runbookUrl"),
        ({"podDisruptionBudget": {"minAvailable": "half"}}, "minAvailable"),
        ({"metrics": {"serviceMonitor": {"enabled": True}, "podMonitor": {"enabled": True}}}, "scraped twice"),
        (
            {"metrics": {"serviceMonitor": {"enabled": True}, "service": {"enabled": False}}},
            "there would be nothing to scrape",
        ),
        ({"metrics": {"podMonitor": {"enabled": True}, "enabled": False}}, "nothing to scrape"),
        ({"metrics": {"serviceMonitor": {"enabled": True}, "enabled": False}}, "nothing to scrape"),
        ({"metrics": {"prometheusRule": {"enabled": True}, "enabled": False}}, "metrics.prometheusRule is enabled"),
        ({"metrics": {"dashboards": {"enabled": True}, "enabled": False}}, "metrics.dashboards is enabled"),
        ({"leaderElection": {"leaseDuration": "10s"}}, "leaseDuration is 10s, but it must be longer"),
        ({"leaderElection": {"leaseDuration": "1m", "renewDeadline": "1m0.5s"}}, "leaseDuration is 1m, but"),
        ({"leaderElection": {"retryPeriod": "9s"}}, "renewDeadline is 10s, but it must be longer"),
        ({"settings": {"shutdownGrace": "40s"}}, "terminationGracePeriodSeconds is 40, but"),
        ({"leaderElection": {"enabled": False}}, "more than 1"),
        ({"dnsPolicy": "None"}, "dnsConfig.nameservers is empty"),
        ({"hooks": {"takeover": {"enabled": True}}}, "hooks.takeover is enabled, but the mode is standalone"),
        (
            {"mode": "takeover", "observe": True, "hooks": {"takeover": {"enabled": True}}},
            "observe and hooks.takeover",
        ),
        (
            {"metrics": {"prometheusRule": {"enabled": True, "alerts": {"VmherdDwon": {}}}}},
            "there is no such alert. The alerts are VmherdReplicasMismatch",
        ),
        ({"rbac": {"userRoles": "namespaces"}}, "watchNamespaces is empty"),
        ({"serviceAccount": {"create": False}}, "serviceAccount.name is needed"),
    ],
)
def test_a_wrong_value_is_refused_by_its_name_and_conflicting_values_with_a_message(
    helm: Helm, values: dict[str, Any], said: str
) -> None:
    assert said in helm.refusal(values)


@pytest.mark.parametrize("image", [{}, {"repository": "me/vmherd"}, {"digest": f"sha256:{'0' * 64}"}])
def test_the_chart_does_not_render_without_an_image(helm: Helm, image: dict[str, str]) -> None:
    said = helm.refusal({"image": {"registry": "", **image}})
    [line] = [line for line in said.splitlines() if "image" in line]
    assert line.startswith("image.registry is empty, and no image of vmherd is published: ")
    for name in ("localhost/vmherd", "registry.example.com/me/vmherd", "registry:5000/vmherd"):
        assert container(helm.render({"image": {"registry": "", "repository": name}}))["image"].startswith(f"{name}:")


def test_an_old_kubernetes_is_refused(helm: Helm) -> None:
    assert "incompatible" in helm.refusal({}, kubernetes="1.29.5")
    assert helm.render(kubernetes="1.30.0")
