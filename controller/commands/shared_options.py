"""Options of several commands, and those of `takeover` and `expose`. Completion imports this module."""

import ipaddress
import re
from typing import Any, Final

import click

from controller.apimachinery.names import is_label
from controller.config.options import Option, Switch
from controller.config.types import ANY_NAMESPACE, OBJECT_NAME, Integer, OneOf, Value, text_value

DRY_RUN: Final = Switch("dry_run", "write nothing, and print the planned changes")
LEASE_ID: Final = Option("leader_election_id", OBJECT_NAME, "the name of the lease", default="vmherd")
LEASE_NAMESPACE: Final = Option(
    "leader_election_namespace", ANY_NAMESPACE, "the namespace of the controller's lease", unset="any"
)


def dangerous_switch(field: str, help: str) -> Switch:
    """Return a switch that only the command line can set. A forgotten environment variable must not destroy objects."""
    return Switch(field, help, has_variable=False)


KUBEVIRT_NAMESPACE: Final = Option("kubevirt_namespace", ANY_NAMESPACE, "the namespace of KubeVirt", unset="any")
UNDO: Final = dangerous_switch("undo", "start KubeVirt's loops for replica sets and pools again")
TAKEOVER_FORCE: Final = dangerous_switch("force", "undo even if the controller still runs")
LEASE: Final = (LEASE_ID, LEASE_NAMESPACE)
TAKEOVER_OPTIONS: Final = (KUBEVIRT_NAMESPACE, UNDO, TAKEOVER_FORCE, *LEASE)


PORTS: Final = range(1, 65536)
HEADLESS: Final = "None"


SERVICE_NAME: Final = text_value("name", is_label, "the name of a Service: lowercase letters, digits and dashes")
PORT_NAME: Final = text_value(
    "name",
    re.compile(r"(?=.{,15}$)(?=.*[a-z])[a-z0-9]+(-[a-z0-9]+)*", re.ASCII).fullmatch,
    "the name of a port: up to 15 lowercase letters, digits and dashes, such as ssh",
)


def _read_target(text: str) -> object:
    if not (text.isascii() and text.isdigit()):
        return PORT_NAME.read(text)
    if len(text) <= 5 and int(text) in PORTS:
        return int(text)
    raise ValueError(f"a port from {PORTS[0]} to {PORTS[-1]}, or the name of a port")


def _read_address(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        raise ValueError("an IP address, such as 192.0.2.1") from None


def _service_option(field: str, type: click.ParamType[Any], help: str, unset: str = "", **more: Any) -> Option:
    """Return an option without an environment variable, because a Service `vmherd` sets VMHERD_PORT in each Pod."""
    return Option(field, type, help, unset=unset, has_variable=False, **more)


SERVICE_OPTIONS: Final = (
    _service_option("name", SERVICE_NAME, "the name of the Service", "the name of the object"),
    _service_option(
        "port",
        Integer(PORTS[0], PORTS[-1]),
        "the port of the Service",
        "the ports of the template's interface on the Pod network",
    ),
    _service_option(
        "target_port", Value("port", _read_target), "the port of the VMs, by number or name", "the value of --port"
    ),
    _service_option("protocol", OneOf("TCP", "UDP"), "the protocol of the port", default="TCP"),
    _service_option("port_name", PORT_NAME, "the name of the port", "none"),
    _service_option(
        "type", OneOf("ClusterIP", "NodePort", "LoadBalancer"), "the type of the Service", default="ClusterIP"
    ),
    _service_option(
        "cluster_ip",
        Value("ip", lambda text: HEADLESS if text.lower() == HEADLESS.lower() else _read_address(text)),
        "the cluster IP of the Service; None for a headless Service",
        "any",
    ),
    _service_option(
        "external_ip", Value("ip", _read_address), "an additional address whose traffic arrives at the nodes", "none"
    ),
    _service_option(
        "ip_family",
        OneOf("IPv4", "IPv6", "IPv4,IPv6", "IPv6,IPv4"),
        "the address families of the Service",
        "the cluster's default",
    ),
    _service_option(
        "ip_family_policy",
        OneOf("SingleStack", "PreferDualStack", "RequireDualStack"),
        "how many address families the Service has",
        "the cluster's default; PreferDualStack if --ip-family has two families",
    ),
)
