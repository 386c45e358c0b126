"""The chart's objects for the Prometheus operator are valid under the operator's definitions."""

from collections.abc import Iterator
from typing import Any

import pytest

from sandbox.controlplane import ControlPlane, install_definitions
from tests.charts.releases import Site
from tests.charts.scraping import definitions
from tests.cluster import Kubectl
from tests.helm import of_kind

pytestmark = [pytest.mark.cluster, pytest.mark.e2e]

PLAIN = {"enabled": True}
EVERYTHING = {
    "enabled": True,
    "labels": {"release": "prometheus"},
    "annotations": {"a": "b"},
    "interval": "1m30s",
    "scrapeTimeout": "10s",
    "honorLabels": False,
    "tlsConfig": {
        "ca": {"secret": {"name": "certificate", "key": "ca.crt"}},
        "cert": {"configMap": {"name": "scraper", "key": "tls.crt"}},
        "keySecret": {"name": "scraper", "key": "tls.key"},
        "minVersion": "TLS12",
    },
    "authorization": {"type": "Bearer", "credentials": {"name": "scraper", "key": "token", "optional": False}},
    "relabelings": [
        {
            "sourceLabels": ["__meta_kubernetes_pod_node_name"],
            "separator": ";",
            "regex": "(.*)",
            "targetLabel": "node",
            "replacement": "$1",
            "action": "replace",
        }
    ],
    "metricRelabelings": [{"sourceLabels": ["__name__"], "regex": "python_.*", "action": "drop"}],
}
SECURE = {"enabled": True, "certificateSecret": "certificate"}
MONITORS = {
    "ServiceMonitor": {"serviceMonitor": PLAIN},
    "ServiceMonitor over HTTPS": {"serviceMonitor": PLAIN, "secure": {"enabled": True}},
    "ServiceMonitor with everything": {"serviceMonitor": EVERYTHING, "secure": SECURE},
    "PodMonitor": {"podMonitor": PLAIN},
    "PodMonitor with everything": {"podMonitor": EVERYTHING, "secure": SECURE},
}


@pytest.fixture(scope="module")
def operators(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    directory = definitions(tmp_path_factory.mktemp("kinds") / "operator")
    install_definitions(plane.kubeconfig, [directory])
    yield
    Kubectl(plane.kubeconfig)("delete", "--filename", str(directory))


@pytest.mark.usefixtures("operators")
@pytest.mark.parametrize("metrics", MONITORS.values(), ids=MONITORS)
def test_the_operators_definitions_know_every_field(site: Site, metrics: dict[str, Any]) -> None:
    given = {**metrics, "prometheusRule": {"enabled": True, "labels": {"a": "b"}, "annotations": {"c": "d"}}}
    rendered = site.helm.render({"metrics": given})
    assert [len(of_kind(rendered, kind)) for kind in ("ServiceMonitor", "PodMonitor", "PrometheusRule")] == [
        "serviceMonitor" in metrics,
        "podMonitor" in metrics,
        True,
    ]
    assert site.dry_run(rendered) == (len(rendered), "")
