"""Translates a ServiceMonitor or PodMonitor into scrape jobs, as the Prometheus operator does.

If a monitor has a field that this module does not translate, the test fails. Otherwise, no test would cover this field.
"""

import base64
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from tests.charts.discovery import discovered, plain
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
ROLES = {"ServiceMonitor": "endpointslice", "PodMonitor": "pod"}
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
    name = f"{kind[0].lower()}{kind[1:]}/{metadata['namespace']}/{metadata['name']}"
    return [
        {
            "job_name": f"{name}/{number}",
            "static_configs": list(discovered(ROLES[kind], kubectl)),
            "relabel_configs": [*_target_labels(monitor, endpoint), *map(_relabeling, endpoint.get("relabelings", ()))],
            "metric_relabel_configs": [_relabeling(each) for each in endpoint.get("metricRelabelings", ())],
            **dict(_settings(endpoint, kubectl, files)),
        }
        for number, endpoint in enumerate(spec[ENDPOINTS[kind]])
    ]


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


def _target_labels(monitor: Object, endpoint: Object) -> Iterator[dict[str, Any]]:
    """The relabeling rules that select the discovered targets and set their labels."""
    services = monitor["kind"] == "ServiceMonitor"
    what = "service" if services else "pod"
    selector = monitor["spec"]["selector"]
    assert selector.keys() == {"matchLabels"}
    for label, value in selector["matchLabels"].items():
        yield _keep(f"({value});true", f"{what}_label_{plain(label)}", f"{what}_labelpresent_{plain(label)}")
    yield _keep(endpoint["port"], "endpointslice_port_name" if services else "pod_container_port_name")
    yield {"action": "drop", "regex": "(Failed|Succeeded)", "source_labels": ["__meta_kubernetes_pod_phase"]}
    copied = {"namespace": "namespace", "pod": "pod_name", "container": "pod_container_name"}
    if services:
        copied |= {"service": "service_name", "job": "service_name"}
    for label, source in copied.items():
        yield {"target_label": label, "source_labels": [f"__meta_kubernetes_{source}"]}
    if not services:
        metadata = monitor["metadata"]
        yield {"target_label": "job", "replacement": f"{metadata['namespace']}/{metadata['name']}"}
    yield {"target_label": "endpoint", "replacement": endpoint["port"]}


def _keep(regex: str, *sources: str) -> dict[str, Any]:
    return {"action": "keep", "regex": regex, "source_labels": [f"__meta_kubernetes_{each}" for each in sources]}


def _relabeling(rule: Object) -> dict[str, Any]:
    return {re.sub(r"[A-Z]", lambda letter: f"_{letter[0].lower()}", field): value for field, value in rule.items()}
