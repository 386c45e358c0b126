"""A running release, and a real Prometheus that scrapes it and answers queries. The control plane has no nodes, so the
release and Prometheus run as processes.

In place of Kubernetes, the test creates the Pod object and the files of its mounted Secrets. In place of the Prometheus
operator, it translates a ServiceMonitor or PodMonitor into scrape jobs. If a monitor has a field that this module does
not translate, the test fails. Otherwise, no test would cover this field.
"""

import base64
import json
import math
import os
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import trustme
import yaml
from msgspec import Struct

from sandbox.gobuild import BuildError, find_go
from sandbox.processes import free_ports
from tests.charts.releases import Site
from tests.cluster import Kubectl, skip_or_fail
from tests.controlplane.programs import ControllerProcess, controller_process
from tests.controlplane.waits import eventually
from tests.helm import run_flags

LOOPBACK = "127.0.0.1"
ACCOUNT = "prometheus"
PIN = Path(__file__).resolve().parents[2] / "tools" / "monitoring"
OPERATOR = "github.com/prometheus-operator/prometheus-operator"
KINDS = ("servicemonitors", "podmonitors", "prometheusrules")


def definitions(directory: Path) -> Path:
    """A new folder with the definitions of the Prometheus operator's kinds, from the operator's Go module.

    `tools/monitoring` pins the module and its checksum. Go downloads the module into its own cache the first time.
    Nothing is compiled.
    """
    try:
        command = [find_go(), "mod", "download", "-json", OPERATOR]
        settings = {**os.environ, "GOWORK": "off"}
        done = subprocess.run(command, cwd=PIN, env=settings, capture_output=True, text=True, timeout=90, check=False)
    except (BuildError, subprocess.TimeoutExpired) as error:
        skip_or_fail(f"the kinds of the Prometheus operator cannot be had: {error}")
    told = json.loads(done.stdout or "{}")
    if done.returncode or "Dir" not in told:
        skip_or_fail(f"the kinds of the Prometheus operator cannot be had: {told.get('Error') or done.stderr[-2000:]}")
    directory.mkdir()
    for kind in KINDS:
        name = f"monitoring.coreos.com_{kind}.yaml"
        # Copy the content only: files in Go's cache are read-only, but the test must be able to delete this folder.
        shutil.copyfile(Path(told["Dir"], "example", "prometheus-operator-crd", name), directory / name)
    return directory


def ports() -> dict[str, Any]:
    metrics, health = free_ports(2)
    return {"healthPort": health, "metrics": {"port": metrics}}


def store_certificate(site: Site, name: str, *, server: str) -> None:
    """Store a certificate for this server in a Secret, as cert-manager does."""
    authority = trustme.CA()
    made = authority.issue_cert(server)
    data = {
        "ca.crt": authority.cert_pem.bytes(),
        "tls.crt": b"".join(blob.bytes() for blob in made.cert_chain_pems),
        "tls.key": made.private_key_pem.bytes(),
    }
    encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "type": "kubernetes.io/tls"}
    site.kubectl.apply({**secret, "data": encoded})


def run_pod(site: Site) -> None:
    """Create a Pod of the Deployment, with the status of a ready Pod."""
    deployment = _deployment(site)
    template = deployment["spec"]["template"]
    name = f"{deployment['metadata']['name']}-0"
    pod = {"apiVersion": "v1", "kind": "Pod", **template, "metadata": {**template["metadata"], "name": name}}
    site.kubectl.apply(pod)
    ready = {"type": "Ready", "status": "True"}
    status = {"phase": "Running", "podIP": LOOPBACK, "podIPs": [{"ip": LOOPBACK}], "conditions": [ready]}
    site.kubectl("patch", "pod", name, "--subresource=status", "--type=merge", "-p", json.dumps({"status": status}))


@contextmanager
def running(site: Site, directory: Path, *flags: str, wait: bool = True) -> Iterator[ControllerProcess]:
    """Run the release's program with the arguments and mounts of the Deployment, and with a token of its account."""
    spec = _deployment(site)["spec"]["template"]["spec"]
    kubeconfig = site.kubeconfig_of(spec["serviceAccountName"], directory)
    with controller_process(kubeconfig, directory, *arguments(site, spec, directory), *flags, wait=wait) as program:
        yield program


def arguments(site: Site, spec: dict[str, Any], root: Path) -> list[str]:
    """The container's arguments. Its Secrets are mounted below another root, and its ports are on loopback only."""
    [container] = spec["containers"]
    volumes = {volume["name"]: volume["secret"] for volume in spec.get("volumes", ())}
    given: list[str] = [
        each.replace("-bind-address=:", f"-bind-address={LOOPBACK}:") for each in run_flags(container["args"])
    ]
    for mount in container.get("volumeMounts", ()):
        path = mount["mountPath"]
        place = root / path.lstrip("/")
        place.mkdir(parents=True, exist_ok=True)
        mounted = site.kubectl.json("get", "secret", volumes[mount["name"]]["secretName"])["data"]
        for key, value in mounted.items():
            (place / key).write_bytes(base64.b64decode(value))
        given = [each.replace(f"={path}/", f"={place}/") for each in given]
    return given


class Monitoring(Struct, frozen=True):
    """A namespace with an account for Prometheus. The account is not part of the release."""

    kubectl: Kubectl
    root: Path

    @classmethod
    def opened(cls, site: Site, root: Path) -> "Monitoring":
        namespace = f"monitoring-of-{site.namespace}"
        kubectl = Kubectl(site.plane.kubeconfig, namespace)
        kubectl("create", "namespace", namespace)
        kubectl("create", "serviceaccount", ACCOUNT)
        return cls(kubectl, root)

    def hand_token_to(self, site: Site, secret: str) -> None:
        """Store a token of the account in a Secret of the release's namespace. A monitor refers to this Secret."""
        token = self.kubectl("create", "token", ACCOUNT).stdout.strip()
        site.kubectl("create", "secret", "generic", secret, f"--from-literal=token={token}")

    def let_in(self, role: str) -> None:
        """Bind the chart's role for reading metrics to the account."""
        name = self.kubectl.namespace
        account = f"--serviceaccount={name}:{ACCOUNT}"
        self.kubectl("create", "clusterrolebinding", name, f"--clusterrole={role}", account)

    def jobs(self, site: Site) -> list[dict[str, Any]]:
        kinds = "servicemonitors.monitoring.coreos.com,podmonitors.monitoring.coreos.com"
        monitors = site.kubectl.json("get", kinds)["items"]
        return [job for monitor in monitors for job in scrape_jobs(monitor, site.kubectl, self.root)]

    def rules(self, site: Site) -> Path:
        """Write the alerts of the PrometheusRules in the release's namespace to a file."""
        found = site.kubectl.json("get", "prometheusrules.monitoring.coreos.com")["items"]
        groups = [group for each in found for group in each["spec"]["groups"]]
        return write(self.root, "/etc/prometheus/rules/rules.yaml", yaml.safe_dump({"groups": groups}))


def dashboards(site: Site) -> dict[str, dict[str, Any]]:
    """The dashboards in the release's namespace that Grafana's sidecar finds."""
    found = site.kubectl.json("get", "configmaps", "--selector=grafana_dashboard=1")["items"]
    return {name: json.loads(text) for each in found for name, text in each["data"].items()}


def _deployment(site: Site) -> dict[str, Any]:
    [found] = site.kubectl.json("get", "deployments")["items"]
    return dict(found)


Object = Mapping[str, Any]

COPIED = {
    "honorLabels": "honor_labels",
    "interval": "scrape_interval",
    "scrapeTimeout": "scrape_timeout",
    "path": "metrics_path",
    "scheme": "scheme",
}
TRANSLATED = {*COPIED, "port", "tlsConfig", "authorization", "relabelings", "metricRelabelings"}
TLS = {"serverName": "server_name", "insecureSkipVerify": "insecure_skip_verify"}
ENDPOINTS = {"ServiceMonitor": "endpoints", "PodMonitor": "podMetricsEndpoints"}


def write(root: Path, path: str, content: str) -> Path:
    """Write a file of Prometheus' Pod. The folder `root` replaces the root directory of the Pod."""
    place = root / path.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(content)
    return place


def scrape_jobs(monitor: Object, kubectl: Kubectl, root: Path) -> list[dict[str, Any]]:
    """Return a scrape job for each endpoint of the monitor. The monitor must select only the namespace that `kubectl`
    uses.
    """
    kind, spec, metadata = monitor["kind"], monitor["spec"], monitor["metadata"]
    known = {"selector", "namespaceSelector", ENDPOINTS[kind]}
    assert spec.keys() <= known, f"{sorted(spec.keys() - known)} of the {kind} would be passed over"
    assert spec["namespaceSelector"] == {"matchNames": [kubectl.namespace]}
    assert spec["selector"].keys() == {"matchLabels"}
    name = f"{kind[0].lower()}{kind[1:]}/{metadata['namespace']}/{metadata['name']}"
    return [
        {
            "job_name": f"{name}/{number}",
            "static_configs": list(_targets(monitor, endpoint["port"], kubectl)),
            "relabel_configs": [_relabeling(each) for each in endpoint.get("relabelings", ())],
            "metric_relabel_configs": [_relabeling(each) for each in endpoint.get("metricRelabelings", ())],
            **dict(_settings(endpoint, kubectl, root)),
        }
        for number, endpoint in enumerate(spec[ENDPOINTS[kind]])
    ]


def _targets(monitor: Object, port: str, kubectl: Kubectl) -> Iterator[dict[str, Any]]:
    """Each port of a Pod to which the monitor leads by the name `port`, with the labels that the operator sets."""
    metadata, wanted = monitor["metadata"], monitor["spec"]["selector"]["matchLabels"]
    pods = kubectl.json("get", "pods")["items"]
    if monitor["kind"] == "PodMonitor":
        labels = {"job": f"{metadata['namespace']}/{metadata['name']}", "endpoint": port}
        yield from _ports(pods, wanted, port, labels)
        return
    for service in kubectl.json("get", "services")["items"]:
        name, offered = service["metadata"]["name"], service["spec"]["ports"]
        for each in offered if _has(service, wanted) else ():
            if each["name"] == port:
                labels = {"job": name, "service": name, "endpoint": port}
                yield from _ports(pods, service["spec"]["selector"], each["targetPort"], labels)


def _ports(
    pods: list[Object], selector: Mapping[str, str], port: str | int, labels: Mapping[str, str]
) -> Iterator[dict[str, Any]]:
    for pod in (each for each in pods if _has(each, selector)):
        for container in pod["spec"]["containers"]:
            for number in (each["containerPort"] for each in container["ports"] if port in each.values()):
                meta = pod["metadata"]
                place = {"namespace": meta["namespace"], "pod": meta["name"], "container": container["name"]}
                yield {"targets": [f"{pod['status']['podIP']}:{number}"], "labels": {**labels, **place}}


def _has(item: Object, labels: Mapping[str, str]) -> bool:
    return labels.items() <= item["metadata"]["labels"].items()


def _settings(endpoint: Object, kubectl: Kubectl, root: Path) -> Iterator[tuple[str, Any]]:
    assert endpoint.keys() <= TRANSLATED, f"{sorted(endpoint.keys() - TRANSLATED)} would be passed over"
    for field, setting in COPIED.items():
        if field in endpoint:
            yield setting, endpoint[field]
    if "tlsConfig" in endpoint:
        yield "tls_config", dict(_tls(endpoint["tlsConfig"], kubectl, root))
    if "authorization" in endpoint:
        given = endpoint["authorization"]
        token = secret(kubectl, **given["credentials"])
        yield "authorization", {"type": given.get("type", "Bearer"), "credentials": token}


def _tls(config: Object, kubectl: Kubectl, root: Path) -> Iterator[tuple[str, Any]]:
    known = {*TLS, "ca"}
    assert config.keys() <= known, f"{sorted(config.keys() - known)} of tlsConfig would be passed over"
    for field, setting in TLS.items():
        if field in config:
            yield setting, config[field]
    if "ca" in config:
        chosen = config["ca"]["secret"]
        path = f"/etc/prometheus/certs/{chosen['name']}_{chosen['key']}"
        yield "ca_file", str(write(root, path, secret(kubectl, **chosen)))


def secret(kubectl: Kubectl, name: str, key: str) -> str:
    """The text in a Secret. The token controller needs a moment for the token of an account."""
    found = eventually(lambda: kubectl.json("get", "secret", name).get("data", {}).get(key), what=f"{name} has {key}")
    return base64.b64decode(found).decode()


def _relabeling(rule: Object) -> dict[str, Any]:
    return {re.sub(r"[A-Z]", lambda letter: f"_{letter[0].lower()}", field): value for field, value in rule.items()}


class Prometheus:
    def __init__(self, url: str) -> None:
        self._url = url
        # Ignore the environment's proxy settings: the server is on loopback.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    @property
    def is_ready(self) -> bool:
        try:
            with self._opener.open(f"{self._url}/-/ready", timeout=10) as answer:
                return bool(answer.status == 200)
        except urllib.error.HTTPError as error:
            error.close()
            return False
        except OSError:
            return False

    def ask(self, query: str) -> list[dict[str, Any]]:
        """The series that an instant query returns. Fails the test if the query is invalid."""
        answer = self._get("query", query=query)
        assert answer["resultType"] == "vector", answer
        return list(answer["result"])

    def numbers(self, query: str) -> list[float]:
        """The values of the query's series, without NaN."""
        values = (float(series["value"][1]) for series in self.ask(query))
        return [value for value in values if not math.isnan(value)]

    def rules(self) -> list[dict[str, Any]]:
        return [rule for group in self._get("rules")["groups"] for rule in group["rules"]]

    def targets(self) -> list[dict[str, Any]]:
        return list(self._get("targets")["activeTargets"])

    def wait_for_scrape(self) -> None:
        """Wait for a scrape that begins after this call."""
        now = time.time()
        eventually(lambda: any(began >= now for began in self.numbers("timestamp(up == 1)")), what="a scrape")

    def _get(self, path: str, **params: str) -> Any:
        url = f"{self._url}/api/v1/{path}?{urllib.parse.urlencode(params)}"
        with self._opener.open(url, timeout=30) as answer:
            return json.load(answer)["data"]


@contextmanager
def prometheus(
    program: Path, directory: Path, jobs: Sequence[dict[str, Any]], *, rules: Path | None = None
) -> Iterator[Prometheus]:
    """Run Prometheus with these jobs and rules while the block runs. Default interval: one second."""
    [port] = free_ports(1)
    settings = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(rules)] if rules else [],
        "scrape_configs": list(jobs),
    }
    (directory / "prometheus.yaml").write_text(yaml.safe_dump(settings))
    command = [program, f"--config.file={directory / 'prometheus.yaml'}", f"--storage.tsdb.path={directory / 'tsdb'}"]
    command += [f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn"]
    with (directory / "prometheus.log").open("wb") as output:
        process = subprocess.Popen(command, cwd=directory, stdout=output, stderr=subprocess.STDOUT)
    server = Prometheus(f"http://127.0.0.1:{port}")

    def ready() -> bool:
        assert process.poll() is None, (directory / "prometheus.log").read_text()[-3000:]
        return server.is_ready

    try:
        eventually(ready, what="Prometheus is ready")
        yield server
    finally:
        process.terminate()
        process.wait(30)
