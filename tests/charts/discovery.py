"""Imitates Prometheus' service discovery in one namespace: it finds every port of every Pod, with and without Services.

Some builds of Prometheus lack this discovery. The labels are those in the documentation of Prometheus. The job's
relabeling rules select the targets.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from tests.cluster import Kubectl

Labels = dict[str, str]


def discovered(role: str, kubectl: Kubectl) -> Iterator[dict[str, Any]]:
    """The discovered targets as a static configuration. `role` is Prometheus' setting of this name: "pod" or
    "endpointslice".
    """
    services = kubectl.json("get", "services")["items"] if role == "endpointslice" else []
    for pod in kubectl.json("get", "pods")["items"]:
        for container in pod["spec"]["containers"]:
            for port in container["ports"]:
                labels = _pod(pod) | _port(container, port)
                if role == "pod":
                    yield _target(pod, port, labels)
                for service in services:
                    for name in _names(service, pod, port):
                        yield _target(pod, port, labels | _service(service) | {"endpointslice_port_name": name})


def _names(service: Mapping[str, Any], pod: Mapping[str, Any], port: Mapping[str, Any]) -> list[str]:
    """The names that the Service gives to this port of the Pod. If the Service does not lead to the port, the result is
    empty.
    """
    if not service["spec"]["selector"].items() <= pod["metadata"]["labels"].items():
        return []
    here = (port["name"], port["containerPort"])
    return [offered["name"] for offered in service["spec"]["ports"] if offered["targetPort"] in here]


def _target(pod: Mapping[str, Any], port: Mapping[str, Any], labels: Labels) -> dict[str, Any]:
    address = f"{pod['status']['podIP']}:{port['containerPort']}"
    return {"targets": [address], "labels": {f"__meta_kubernetes_{name}": value for name, value in labels.items()}}


def _pod(pod: Mapping[str, Any]) -> Labels:
    metadata = pod["metadata"]
    facts = {"namespace": metadata["namespace"], "pod_name": metadata["name"], "pod_phase": pod["status"]["phase"]}
    return facts | _labels("pod", metadata)


def _port(container: Mapping[str, Any], port: Mapping[str, Any]) -> Labels:
    return {"pod_container_name": container["name"], "pod_container_port_name": port["name"]}


def _service(service: Mapping[str, Any]) -> Labels:
    return {"service_name": service["metadata"]["name"]} | _labels("service", service["metadata"])


def _labels(whose: str, metadata: Mapping[str, Any]) -> Labels:
    named = {plain(label): value for label, value in metadata["labels"].items()}
    return {f"{whose}_label_{label}": value for label, value in named.items()} | {
        f"{whose}_labelpresent_{label}": "true" for label in named
    }


def plain(label: str) -> str:
    """Turn a name into a valid label name of Prometheus."""
    return re.sub(r"[^a-zA-Z0-9_]", "_", label)
