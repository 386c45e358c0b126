"""Translates a ServiceMonitor or PodMonitor into scrape jobs, as the Prometheus operator does.

If a monitor has a field that this module does not translate, the test fails. Otherwise, no test would cover this field.
"""

import base64
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from tests.cluster import Kubectl
from tests.controlplane.waits import eventually

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


class Files(Struct, frozen=True):
    """A folder that replaces the root directory of Prometheus' Pod."""

    root: Path

    def place(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def write(self, path: str, content: str) -> Path:
        place = self.place(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(content)
        return place


def scrape_jobs(monitor: Object, kubectl: Kubectl, files: Files) -> list[dict[str, Any]]:
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
            **dict(_settings(endpoint, kubectl, files)),
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


def _settings(endpoint: Object, kubectl: Kubectl, files: Files) -> Iterator[tuple[str, Any]]:
    assert endpoint.keys() <= TRANSLATED, f"{sorted(endpoint.keys() - TRANSLATED)} would be passed over"
    for field, setting in COPIED.items():
        if field in endpoint:
            yield setting, endpoint[field]
    if "tlsConfig" in endpoint:
        yield "tls_config", dict(_tls(endpoint["tlsConfig"], kubectl, files))
    if "authorization" in endpoint:
        given = endpoint["authorization"]
        token = secret(kubectl, **given["credentials"])
        yield "authorization", {"type": given.get("type", "Bearer"), "credentials": token}


def _tls(config: Object, kubectl: Kubectl, files: Files) -> Iterator[tuple[str, Any]]:
    known = {*TLS, "ca", "caFile"}
    assert config.keys() <= known, f"{sorted(config.keys() - known)} of tlsConfig would be passed over"
    for field, setting in TLS.items():
        if field in config:
            yield setting, config[field]
    if "caFile" in config:
        yield "ca_file", str(files.place(config["caFile"]))
    if "ca" in config:
        chosen = config["ca"]["secret"]
        path = f"/etc/prometheus/certs/{chosen['name']}_{chosen['key']}"
        yield "ca_file", str(files.write(path, secret(kubectl, **chosen)))


def secret(kubectl: Kubectl, name: str, key: str) -> str:
    """The text in a Secret. The token controller needs a moment for the token of an account."""
    found = eventually(lambda: kubectl.json("get", "secret", name).get("data", {}).get(key), what=f"{name} has {key}")
    return base64.b64decode(found).decode()


def _relabeling(rule: Object) -> dict[str, Any]:
    return {re.sub(r"[A-Z]", lambda letter: f"_{letter[0].lower()}", field): value for field, value in rule.items()}
