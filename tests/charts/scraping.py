"""A running release and a Prometheus that scrapes it. The control plane has no nodes, so the release and Prometheus run
as processes.

In place of Kubernetes, the test creates the Pod object and the files of its mounted Secrets.
"""

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import trustme
import yaml
from msgspec import Struct

from sandbox.gobuild import BuildError, find_go
from sandbox.processes import free_ports
from tests.charts.monitors import Files, scrape_jobs
from tests.charts.releases import Site
from tests.cluster import Kubectl, skip_or_fail
from tests.controlplane.programs import ControllerProcess, controller_process
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
    metadata = {"name": name}
    site.kubectl.apply(
        {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "kubernetes.io/tls", "data": encoded}
    )


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
    files: Files

    @classmethod
    def opened(cls, site: Site, root: Path) -> "Monitoring":
        namespace = f"monitoring-of-{site.namespace}"
        kubectl = Kubectl(site.plane.kubeconfig, namespace)
        kubectl("create", "namespace", namespace)
        kubectl("create", "serviceaccount", ACCOUNT)
        return cls(kubectl, Files(root))

    def hand_token_to(self, site: Site, secret: str) -> None:
        """Store a token of the account in a Secret of the release's namespace. A monitor refers to this Secret."""
        site.kubectl("create", "secret", "generic", secret, f"--from-literal=token={_token(self.kubectl)}")

    def let_in(self, role: str) -> None:
        """Bind the chart's role for reading metrics to the account."""
        account = f"{self.kubectl.namespace}:{ACCOUNT}"
        binding = ("create", "clusterrolebinding", self.kubectl.namespace, f"--clusterrole={role}")
        self.kubectl(*binding, f"--serviceaccount={account}")

    def jobs(self, site: Site) -> list[dict[str, Any]]:
        """The scrape jobs of the monitors in the release's namespace."""
        kinds = "servicemonitors.monitoring.coreos.com,podmonitors.monitoring.coreos.com"
        monitors = site.kubectl.json("get", kinds)["items"]
        return [job for monitor in monitors for job in scrape_jobs(monitor, site.kubectl, self.files)]

    def rules(self, site: Site) -> Path:
        """Write the alerts of the PrometheusRules in the release's namespace to a file."""
        found = site.kubectl.json("get", "prometheusrules.monitoring.coreos.com")["items"]
        groups = [group for each in found for group in each["spec"]["groups"]]
        return self.files.write("/etc/prometheus/rules/rules.yaml", yaml.safe_dump({"groups": groups}))


def dashboards(site: Site) -> dict[str, dict[str, Any]]:
    """The dashboards in the release's namespace that Grafana's sidecar finds."""
    found = site.kubectl.json("get", "configmaps", "--selector=grafana_dashboard=1")["items"]
    return {name: json.loads(text) for each in found for name, text in each["data"].items()}


def _deployment(site: Site) -> dict[str, Any]:
    [found] = site.kubectl.json("get", "deployments")["items"]
    return dict(found)


def _token(kubectl: Kubectl) -> str:
    return kubectl("create", "token", ACCOUNT).stdout.strip()
