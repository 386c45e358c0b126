"""A real Prometheus finds the Pods by the release's ServiceMonitor, and scrapes them over the Pods' network."""

from pathlib import Path

import pytest

from sandbox import crds
from tests.charts.scraping import Monitoring, definitions, store_certificate
from tests.charts.test_scraping import AUTHORITY, OFTEN, VERIFIED
from tests.controlplane.waits import eventually
from tests.integration.prometheus import prometheus, prometheus_program
from tests.realnode.release import Release

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


def test_prometheus_scrapes_both_pods_and_sees_which_one_leads(bare: Release, tmp_path: Path) -> None:
    program, site = prometheus_program(), bare.site
    crds.install(site.plane.kubeconfig, [definitions(tmp_path / "operator")])
    eventually(lambda: "servicemonitors.monitoring.coreos.com" in site.served(), what="ServiceMonitors are served")
    store_certificate(site, "certificate", server=f"vmherd-metrics.{site.namespace}.svc")
    bare.install(metrics={**VERIFIED, "serviceMonitor": {**OFTEN, "tlsConfig": AUTHORITY}})
    monitoring = Monitoring.opened(site, tmp_path / "prometheus")
    monitoring.let_in("vmherd-metrics-reader")
    with prometheus(program, tmp_path, monitoring.jobs(site)) as server:

        def leaders() -> list[str]:
            """The Pods whose metrics say that they lead, if Prometheus scrapes exactly the Pods that run."""
            up = {each["metric"]["pod"] for each in server.ask("up == 1")}
            found = server.ask("leader_election_master_status == 1")
            return [each["metric"]["pod"] for each in found] if up == bare.pods().keys() else []

        eventually(lambda: leaders() == [bare.leader()], what="both Pods are scraped")
        assert {target["labels"]["service"] for target in server.targets()} == {"vmherd-metrics"}
