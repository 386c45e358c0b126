"""Metrics end to end: a real Prometheus scrapes the controller over HTTPS with a token.

The controller has exactly the permissions that `permissions_needed` lists. tests/charts checks the alerts and
dashboards against a release of the chart.
"""

import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import trustme

from sandbox.binaries import Binaries
from tests.cluster import Kubectl, running_plane
from tests.controlplane.documents import BEHAVIOR, READY_AFTER, vm_template
from tests.controlplane.namespace import PoolNamespace, new_pool_namespace
from tests.controlplane.programs import ControllerProcess, controller_process, simulator
from tests.controlplane.waits import eventually
from tests.integration.prometheus import Prometheus, Target, prometheus, prometheus_program

pytestmark = [pytest.mark.cluster, pytest.mark.e2e, pytest.mark.timeout(180)]

SCRAPER = "prometheus"
SOON = {"startUpFailureThreshold": 99, "minFailingToStartDuration": "1s"}


class Certificate:
    """The controller's certificate on disk, and its certificate authority."""

    def __init__(self, directory: Path) -> None:
        self._authority = trustme.CA()
        self.authority = directory / "ca.crt"
        self.certificate, self.key = directory / "tls.crt", directory / "tls.key"
        self._authority.cert_pem.write_to_path(self.authority)
        self.renew()

    def renew(self) -> None:
        made = self._authority.issue_cert("127.0.0.1")
        self.key.write_bytes(made.private_key_pem.bytes())
        self.certificate.write_bytes(b"".join(blob.bytes() for blob in made.cert_chain_pems))


class Watched(NamedTuple):
    """A running controller, a Prometheus that scrapes it, a healthy namespace, and a namespace with a failing VM."""

    program: ControllerProcess
    certificate: Certificate
    prometheus: Prometheus
    tokens: dict[str, str]
    shop: PoolNamespace
    clinic: PoolNamespace

    def scrape(self, token: str) -> tuple[int, str]:
        """Request the metrics with this token. Without a token, the request has no Authorization header."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        request = urllib.request.Request(self.url, headers=headers)
        context = ssl.create_default_context(cafile=str(self.certificate.authority))
        handlers = urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        try:
            with urllib.request.build_opener(*handlers).open(request, timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def ask(self, query: str) -> list[float]:
        """The values of the query's series. After a scrape that took too long, there are no values for a moment."""
        return eventually(lambda: self.prometheus.numbers(query), what=query)

    @property
    def url(self) -> str:
        return self.program.metrics_url.replace("http://", "https://")


@pytest.fixture(scope="module")
def watched(control_plane_binaries: Binaries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    program, directory = prometheus_program(), tmp_path_factory.mktemp("metrics")
    certificate = Certificate(directory)
    with running_plane(control_plane_binaries) as plane, simulator(plane):
        kubectl = Kubectl(plane.kubeconfig, "default")
        for account in (SCRAPER, "nosy"):
            kubectl("create", "serviceaccount", account)
        kubectl("create", "clusterrole", "metrics-reader", "--verb=get", "--non-resource-url=/metrics")
        binding = ("create", "clusterrolebinding", SCRAPER, "--clusterrole=metrics-reader")
        kubectl(*binding, f"--serviceaccount=default:{SCRAPER}")
        tokens = {name: kubectl("create", "token", name).stdout.strip() for name in (SCRAPER, "nosy")}
        (directory / "token").write_text(tokens[SCRAPER])
        files = ("--metrics-cert-file", str(certificate.certificate), "--metrics-key-file", str(certificate.key))
        with controller_process(plane, directory, "--metrics-secure", *files) as running:
            address = running.metrics_url.removeprefix("http://").removesuffix("/metrics")
            labels = {"namespace": "vmherd-system", "pod": "vmherd-0"}
            target = Target(address, certificate.authority, directory / "token", labels)
            with (
                prometheus(program, directory, [target.job]) as server,
                new_pool_namespace(plane) as shop,
                new_pool_namespace(plane) as clinic,
            ):
                watched = Watched(running, certificate, server, {**tokens, "vmherd": running.pod.token}, shop, clinic)
                live(watched)
                yield watched


def quick(behavior: str = "normal", memory: str = "64M") -> dict[str, object]:
    return vm_template(vmi_annotations={BEHAVIOR: behavior, READY_AFTER: "100ms"}, memory=memory)


def live(watched: Watched) -> None:
    """Create a pool that is scaled and updated, a set, a paused pool, and a pool whose VM always fails."""
    shop, clinic = watched.shop, watched.clinic
    shop.make(3, template=quick())
    shop.sets.make(2)
    clinic.make(1, template=quick("image-error"), autohealing=SOON)
    shop.wait_ready(3)
    eventually(lambda: shop.sets.status().get("readyReplicas") == 2, what="the set is ready")
    shop.change_template(quick(memory="128M"))
    shop.wait_ready(3)
    shop.scale(2)
    shop.wait_ready(2)
    shop.make(1, name="paused", template=quick(), paused=True)
    eventually(lambda: shop.condition("ReplicaPaused", name="paused"), what="paused")
    eventually(lambda: clinic.told("SuccessfulDelete")["pool"], what="a healing")
    watched.prometheus.wait_for_scrape()


def test_only_authorized_users_get_metrics(watched: Watched) -> None:
    status, page = watched.scrape(watched.tokens[SCRAPER])
    assert status == 200
    assert "vmherd_build_info{" in page
    assert watched.scrape("") == (
        401,
        "send the header 'Authorization: Bearer <token>' with the token of a service account\n",
    )
    assert watched.scrape("made.up.token") == (401, "the API server does not accept this token\n")
    assert watched.scrape(watched.tokens["nosy"]) == (
        403,
        "system:serviceaccount:default:nosy may not get /metrics; a ClusterRole must allow this nonResourceURL\n",
    )


def test_the_log_has_no_token(watched: Watched) -> None:
    for token in watched.tokens.values():
        watched.scrape(token)
    watched.scrape("made.up.token")
    log = watched.program.log.read_text()
    assert "denied a metrics request" in log
    assert not [name for name, token in {**watched.tokens, "made up": "made.up.token"}.items() if token in log]


def test_without_tls_a_request_gets_no_metrics(watched: Watched) -> None:
    with pytest.raises((urllib.error.URLError, ConnectionError)):
        urllib.request.urlopen(watched.program.metrics_url, timeout=10)


def test_scrapes_continue_with_a_new_certificate(watched: Watched) -> None:
    def serial() -> str:
        address = watched.program.metrics_url.removeprefix("http://").partition("/")[0].split(":")
        return ssl.get_server_certificate((address[0], int(address[1])))

    before = serial()
    watched.certificate.renew()
    eventually(lambda: serial() != before, what="the new certificate is served")
    assert watched.scrape(watched.tokens[SCRAPER])[0] == 200
    watched.prometheus.wait_for_scrape()


def test_prometheus_accepts_the_whole_page_and_shows_each_object_in_its_namespace(watched: Watched) -> None:
    def is_up() -> bool:
        [target] = watched.prometheus.targets()
        return (target["health"], target["lastError"]) == ("up", "")

    eventually(is_up, what="a scrape that Prometheus accepts")
    labels = f'namespace="{watched.shop.namespace}"'
    ask = watched.ask
    assert ask(f'vmherd_replicas_ready{{kind="VirtualMachinePool", name="pool", {labels}}}') == [2]
    assert ask(f'vmherd_replicas_desired{{kind="VirtualMachineInstanceReplicaSet", name="herd", {labels}}}') == [2]
    assert ask(f'vmherd_vmpool_paused{{name="paused", {labels}}}') == [1]
    assert ask(f'vmherd_vmpool_printable_status{{name="paused", status="Paused", {labels}}}') == [1]
    assert ask(f'vmherd_vmpool_vms_started_total{{pool_name="pool", {labels}}}') == [3]
    assert ask(f'vmherd_vmpool_vms_stopped_total{{pool_name="pool", {labels}}}') == [1]
    healed = f'vmherd_vmpool_auto_healing_operations_total{{namespace="{watched.clinic.namespace}"}}'
    # The controller counts a healing at the end of the reconciliation. The Event and the status come before.
    eventually(lambda: ask(healed)[0] >= 1, what="the healing is counted")
    assert ask('sum(vmherd_vms_updated_total{result="success"})')[0] >= 3
    assert ask('leader_election_master_status{namespace="vmherd-system"}') == [1]


def test_each_vm_and_vmi_counts_once_when_it_is_ready_for_the_first_time(watched: Watched) -> None:
    """The update has restarted all VMs of the pool, and they became ready again. The failing VM is never ready."""
    ask, ready = watched.ask, "vmherd_create_to_ready_seconds"
    assert ask(f'{ready}_count{{kind="VirtualMachinePool"}}') == [3]
    assert ask(f'{ready}_count{{kind="VirtualMachineInstanceReplicaSet"}}') == [2]
    assert 0 <= ask(f"sum({ready}_sum)")[0] < 300


def test_the_series_of_an_object_end_with_the_object(watched: Watched) -> None:
    watched.shop.make(1, name="brief", template=quick())
    names = '__name__=~"vmherd_.*"'
    brief = f'{{{names}, name="brief"}} or {{{names}, pool_name="brief"}}'
    eventually(lambda: len(watched.prometheus.ask(brief)) >= 15, what="its series exist")
    watched.shop.kubectl("delete", "vmpool", "brief", "--cascade=background")
    eventually(lambda: not watched.prometheus.ask(brief), what="its series are removed")
    watched.shop.make(1, name="brief", template=quick())
    started = f'vmherd_vmpool_vms_started_total{{namespace="{watched.shop.namespace}", pool_name="brief"}}'
    seen = eventually(lambda: [n for n in watched.prometheus.numbers(started) if n], what="the next one is counted")
    assert seen == [1], "from zero on"
