"""Monitoring as the chart installs it, with a real Prometheus and a real API server.

Prometheus finds the release by the release's monitor, and authenticates with a token. A role of the release allows
Prometheus' requests. Prometheus evaluates the release's alerts and dashboards.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from sandbox.binaries import Binaries
from sandbox.controlplane import CRD_DIRECTORIES, ControlPlane, install_definitions
from tests.charts.releases import Site, bare_plane
from tests.charts.scraping import (
    Monitoring,
    Prometheus,
    dashboards,
    definitions,
    ports,
    prometheus,
    run_pod,
    running,
    store_certificate,
)
from tests.controlplane.documents import BEHAVIOR, READY_AFTER, vm_template
from tests.controlplane.namespace import PoolNamespace, new_pool_namespace
from tests.controlplane.programs import ControllerProcess, simulator
from tests.controlplane.refusals import allow
from tests.controlplane.waits import eventually
from tests.helm import helm_or_skip
from tests.monitoring.queries import filled_in
from tests.promtool import find_or_skip

pytestmark = [pytest.mark.cluster, pytest.mark.e2e, pytest.mark.timeout(180)]

LONG_LEASE = ("--lease-duration=10m", "--renew-deadline=9m")
"""The release must stay the leader while a test stops the process."""

OFTEN = {"enabled": True, "interval": "1s", "scrapeTimeout": "1s"}
TOKEN = {"authorization": {"credentials": {"name": "scraper", "key": "token"}}}
AUTHORITY = {"ca": {"secret": {"name": "certificate", "key": "ca.crt"}}}
VERIFIED = {"secure": {"enabled": True, "certificateSecret": "certificate"}}
SOON = {"startUpFailureThreshold": 99, "minFailingToStartDuration": "1s"}


@pytest.fixture(scope="module")
def monitored_plane(
    control_plane_binaries: Binaries, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    """A control plane with KubeVirt's VMs and the Prometheus operator's kinds, without the project's kinds."""
    kinds = definitions(tmp_path_factory.mktemp("kinds") / "operator")
    with bare_plane(control_plane_binaries, CRD_DIRECTORIES[1]) as plane:
        install_definitions(plane.kubeconfig, [kinds])
        yield plane


@pytest.fixture(scope="module")
def site(monitored_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Site:
    helm_or_skip(4)
    return Site.opened(monitored_plane, 4, tmp_path_factory.mktemp("helm"))


class Watched(NamedTuple):
    """The running release, its Prometheus, and three namespaces. `shop` is healthy, `clinic` has failing VMs, and
    `crowd` has a full quota. Too many VMs of the pool `ward` fail, so they are not replaced.
    """

    site: Site
    program: ControllerProcess
    prometheus: Prometheus
    shop: PoolNamespace
    clinic: PoolNamespace
    crowd: PoolNamespace


@pytest.fixture(scope="module")
def watched(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    program, directory, plane = find_or_skip("prometheus"), tmp_path_factory.mktemp("watched"), site.plane
    store_certificate(site, "certificate", server=f"vmherd-metrics.{site.namespace}.svc")
    listening = ports()
    on = {name: {"enabled": True} for name in ("prometheusRule", "dashboards")}
    monitor = {"serviceMonitor": {**OFTEN, **TOKEN, "tlsConfig": AUTHORITY}}
    metrics = {**listening.pop("metrics"), **VERIFIED, **on, **monitor}
    site.install(**listening, metrics=metrics)
    run_pod(site)
    monitoring = Monitoring.opened(site, directory / "prometheus")
    monitoring.hand_token_to(site, "scraper")
    with (
        simulator(plane),
        running(site, directory, *LONG_LEASE) as release,
        prometheus(program, directory, monitoring.jobs(site), rules=monitoring.rules(site)) as server,
        new_pool_namespace(plane) as shop,
        new_pool_namespace(plane) as clinic,
        new_pool_namespace(plane) as crowd,
    ):
        watched = Watched(site, release, server, shop, clinic, crowd)
        begin(watched)
        eventually(lambda: refused(server), what="a scrape without the role is refused")
        monitoring.let_in("vmherd-metrics-reader")
        settle(watched)
        eventually(lambda: up(server), what="a scrape with the role succeeds")
        live(watched)
        yield watched


def refused(server: Prometheus) -> bool:
    told = [(target["health"], target["lastError"]) for target in server.targets()]
    return told == [("down", "server returned HTTP status 403 Forbidden")]


def up(server: Prometheus) -> bool:
    return [target["health"] for target in server.targets()] == ["up"]


def begin(watched: Watched) -> None:
    watched.shop.make(3, template=quick())
    watched.shop.sets.make(2)
    watched.clinic.make(1, template=quick("image-error"), autohealing=SOON)
    watched.clinic.make(2, name="ward", template=quick("image-error"), autohealing=SOON)


def settle(watched: Watched) -> None:
    """Wait until all objects in the healthy namespace are ready, and the set in the namespace with the full quota
    fails.
    """
    watched.shop.wait_ready(3)
    eventually(lambda: watched.shop.sets.status().get("readyReplicas") == 2, what="the set is ready")
    allow(watched.crowd.sets, 0)
    watched.crowd.sets.make(2)
    eventually(lambda: watched.crowd.sets.condition("ReplicaFailure"), what="the set's VMIs are refused")


def live(watched: Watched) -> None:
    """Update and scale one pool, pause another pool, and wait until the failing VM is replaced. A second pool and more
    VMIs of the set become ready while Prometheus scrapes.
    """
    shop, clinic = watched.shop, watched.clinic
    watched.prometheus.wait_for_scrape()
    shop.make(1, name="late", template=quick())
    shop.sets.change({"spec": {"replicas": 3}})
    shop.wait_ready(1, name="late")
    eventually(lambda: shop.sets.status().get("readyReplicas") == 3, what="the set is ready")
    shop.change_template(quick(memory="128M"))
    shop.wait_ready(3)
    shop.scale(2)
    shop.wait_ready(2)
    shop.make(1, name="paused", template=quick(), paused=True)
    eventually(lambda: shop.condition("ReplicaPaused", name="paused"), what="paused")
    eventually(lambda: clinic.told("SuccessfulDelete")["pool"], what="a healing")
    eventually(lambda: clinic.told("HealingHeld")["ward"], what="a healing that is held")
    watched.prometheus.wait_for_scrape()
    # A rate needs two samples.
    watched.prometheus.wait_for_scrape()


def quick(behavior: str = "normal", memory: str = "64M") -> dict[str, Any]:
    return vm_template(vmi_annotations={BEHAVIOR: behavior, READY_AFTER: "100ms"}, memory=memory)


def test_the_only_target_is_the_release_and_each_series_has_the_namespace_of_its_object(watched: Watched) -> None:
    [target] = watched.prometheus.targets()
    place = {"namespace": watched.site.namespace, "pod": "vmherd-0", "container": "vmherd"}
    wanted = {"job": "vmherd-metrics", "service": "vmherd-metrics", "endpoint": "metrics", **place}
    assert {**wanted, "instance": target["labels"]["instance"]} == target["labels"]
    assert target["scrapeUrl"].startswith("https://")
    ask, numbers = watched.prometheus.ask, watched.prometheus.numbers
    pool = f'job="vmherd-metrics", kind="VirtualMachinePool", name="pool", namespace="{watched.shop.namespace}"'
    eventually(lambda: numbers(f"vmherd_replicas_ready{{{pool}}}") == [2], what="two ready replicas")
    assert numbers(f'vmherd_vmpool_vms_started_total{{name="pool", namespace="{watched.shop.namespace}"}}') == [3]
    healed = f'vmherd_vmpool_auto_healing_operations_total{{namespace="{watched.clinic.namespace}", name="pool"}}'
    # The controller counts a healing at the end of the reconciliation. The Event comes before.
    eventually(lambda: sum(numbers(healed)) >= 1, what="the healing is counted")
    places = {place.namespace for place in (watched.shop, watched.clinic, watched.crowd)}
    desired = "vmherd_replicas_desired"
    eventually(lambda: {each["metric"]["namespace"] for each in ask(desired)} == places, what="their own namespaces")


def test_every_query_of_the_dashboards_is_answered(watched: Watched) -> None:
    boards = dashboards(watched.site)
    assert sorted(boards) == ["vmherd-controller.json", "vmherd-fleet.json"]
    for board in boards.values():
        chosen = choices(watched.prometheus, board)
        assert chosen["job"] == "vmherd-metrics"
        asked = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
        assert len(asked) > 15
        for query in asked:
            sent = filled_in(query, **chosen)
            eventually(lambda sent=sent: watched.prometheus.numbers(sent), what=f"an answer to {sent}")


def choices(server: Prometheus, board: dict[str, Any]) -> dict[str, str]:
    """The values of Grafana's variables if the user leaves each variable at "All"."""
    chosen = {"__rate_interval": "5m"}
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            asked = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"])
            assert asked, variable
            sent = filled_in(asked[1], **chosen)
            series = eventually(lambda sent=sent: server.ask(sent), what=f"an answer to {sent}")
            found = {each["metric"].get(asked[2], "") for each in series}
            chosen[variable["name"]] = variable.get("allValue") or "|".join(sorted(found))
    return chosen


def active(server: Prometheus) -> set[tuple[str, str, str]]:
    return {
        (rule["name"], alert["labels"].get("namespace", ""), alert["labels"].get("name", ""))
        for rule in server.rules()
        for alert in rule.get("alerts", ())  # a recording rule has none
    }


def test_every_alert_is_evaluated_and_the_expected_object_alerts_are_active(watched: Watched) -> None:
    server, full = watched.prometheus, (watched.crowd.namespace, "herd")
    eventually(lambda: {rule["health"] for rule in server.rules()} == {"ok"}, what="all rules are evaluated")
    assert len(server.rules()) > 10
    expected = {
        ("VmherdReplicasMismatch", watched.clinic.namespace, "pool"),
        ("VmherdReplicasMismatch", watched.clinic.namespace, "ward"),
        ("VmherdHealingHeld", watched.clinic.namespace, "ward"),
        ("VmherdReplicasMismatch", *full),
        ("VmherdReplicaFailure", *full),
    }
    # Alerts about the program itself may fire on a busy machine.
    places = {place.namespace for place in (watched.shop, watched.clinic, watched.crowd)}
    eventually(
        lambda: {each for each in active(server) if each[1] in places} == expected, what="exactly the expected alerts"
    )
    down = {("VmherdDown", "", ""), ("VmherdNoLeader", watched.site.namespace, "vmherd")}
    eventually(lambda: not down & active(server), what="no alert about a missing target")


RELABELED = {
    "relabelings": [{"targetLabel": "cluster", "replacement": "north"}],
    "metricRelabelings": [{"sourceLabels": ["__name__"], "regex": "python_.*", "action": "drop"}],
}
WAYS: dict[str, dict[str, Any]] = {
    "in the clear": {"serviceMonitor": {**OFTEN, **RELABELED}},
    "unverified, with the token of the chart": {"secure": {"enabled": True}, "serviceMonitor": {**OFTEN, **RELABELED}},
    "by Pod and with the token of a Secret": {
        **VERIFIED,
        "podMonitor": {**OFTEN, **RELABELED, **TOKEN, "tlsConfig": AUTHORITY},
    },
}


@pytest.fixture
def second_site(site: Site, tmp_path: Path) -> Iterator[Site]:
    second = Site.opened(site.plane, 4, tmp_path)
    yield second
    second.helm("uninstall", "vmherd", "--ignore-not-found", "--no-hooks")
    second.kubectl("delete", "namespace", second.namespace, "--wait=false")


@pytest.mark.parametrize("metrics", WAYS.values(), ids=WAYS)
def test_a_release_can_be_scraped(second_site: Site, metrics: dict[str, Any], tmp_path: Path) -> None:
    program = find_or_skip("prometheus")
    store_certificate(second_site, "certificate", server=f"beside-metrics.{second_site.namespace}.svc")
    listening = ports()
    metrics = {**listening.pop("metrics"), **metrics}
    # The second release installs no definitions, and only observes.
    second_site.install(fullnameOverride="beside", observe=True, crds={"enabled": False}, metrics=metrics, **listening)
    run_pod(second_site)
    monitoring = Monitoring.opened(second_site, tmp_path / "prometheus")
    monitoring.hand_token_to(second_site, "scraper")
    if "podMonitor" in metrics:
        monitoring.let_in("beside-metrics-reader")
    with (
        running(second_site, tmp_path, wait=False),
        prometheus(program, tmp_path, monitoring.jobs(second_site)) as server,
    ):
        eventually(lambda: up(server), what="the target is up")
        [target] = server.targets()
        assert (target["labels"]["pod"], target["labels"]["cluster"]) == ("beside-0", "north")
        assert target["scrapeUrl"].partition(":")[0] == ("https" if "secure" in metrics else "http")
        eventually(lambda: server.ask("vmherd_build_info"), what="its metrics")
        assert not server.ask("python_info")
