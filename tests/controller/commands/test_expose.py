"""A Service for the VMs of a replica set or pool: its selector, its ports, and the errors for impossible requests."""

import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.apimachinery.field_error import FieldError
from controller.apimachinery.label_selectors import LabelSelector, SelectorRequirement
from controller.apimachinery.owner_references import controller_reference
from controller.cli import main
from controller.kinds import POOLS, REPLICA_SETS, Kind
from controller.kubevirt.pool_types import Pool
from controller.kubevirt.replicaset_types import ReplicaSet
from controller.kubevirt.services import NOT_COMMON, ServicePort, ServiceRequest, choose_selector, make_service
from plugin.cli import main as kubectl_vmherd
from plugin.commands.operators import service_request
from tests import builders, pool_builders

SSH = ServicePort(27017, target_port=22)
WISH = ServiceRequest(name="vmiservice", namespace="default", ports=(SSH,))
NO_PORTS = msgspec.structs.replace(WISH, ports=())
LABELS = st.dictionaries(st.sampled_from(["app", "tier", "zone", "kubevirt.io", "vmi.kubevirt.io/id"]), st.text("ab"))
SERVES = {"vmherd.dev/in-service": "true"}
EXPRESSION = SelectorRequirement(key="tier", operator="Exists")


def service(owner: ReplicaSet | Pool, wish: ServiceRequest = WISH) -> dict[str, Any]:
    made = made_for(owner, wish)
    assert not isinstance(made, FieldError), made.message
    return dict(json.loads(msgspec.json.encode(made)))


def made_for(owner: ReplicaSet | Pool, wish: ServiceRequest) -> Mapping[str, object] | FieldError:
    kind: Kind[Any] = POOLS if isinstance(owner, Pool) else REPLICA_SETS
    assert kind.vmi_template is not None
    return make_service(owner, kind.vmi_template, controller_reference(kind.resource(), owner.metadata), wish)


def flaw(owner: ReplicaSet | Pool, wish: ServiceRequest = WISH) -> str:
    made = made_for(owner, wish)
    assert isinstance(made, FieldError)
    return made.message


def listening(*ports: dict[str, Any], network: str = "default", networks: Any = None) -> bytes:
    """A VMI spec with a network interface that has these ports. `network` is the name of the interface."""
    interface = {"name": network, "masquerade": {}, "ports": list(ports)}
    networks = [{"name": "default", "pod": {}}] if networks is None else networks
    spec = {"domain": {"devices": {"interfaces": [{"name": "other"}, interface]}}, "networks": networks}
    return json.dumps(spec).encode()


def test_the_command_of_the_user_guide_makes_the_service_of_the_user_guide():
    owner = builders.replicaset("vmi-ephemeral", match_labels={"special": "a"}, template_labels={"special": "a"})
    assert service(owner) == {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": "vmiservice",
            "namespace": "default",
            "ownerReferences": [
                {
                    "apiVersion": "kubevirt.io/v1",
                    "kind": "VirtualMachineInstanceReplicaSet",
                    "name": "vmi-ephemeral",
                    "uid": "uid-of-the-set",
                    "controller": True,
                    "blockOwnerDeletion": False,
                }
            ],
        },
        "spec": {"selector": {"special": "a"}, "ports": [{"port": 27017, "targetPort": 22}]},
    }


def test_a_pools_service_selects_by_the_labels_of_vmis_and_not_of_vms():
    owner = pool_builders.pool(labels={"app": "web", "of": "vm"}, spec=pool_builders.vm_spec(labels={"of": "vmi"}))
    made = service(owner)
    assert made["spec"]["selector"] == {"of": "vmi"}
    [reference] = made["metadata"]["ownerReferences"]
    assert (reference["kind"], reference["apiVersion"]) == ("VirtualMachinePool", "pool.kubevirt.io/v1beta1")


@pytest.mark.parametrize(
    ("selector", "labels", "chosen"),
    [
        (LabelSelector({"app": "a"}), {"app": "a", "version": "1"}, {"app": "a"}),
        (LabelSelector({"app": "a", "tier": "b"}), {"app": "a", "version": "1"}, {"app": "a", "version": "1"}),
        (LabelSelector({"app": "b"}), {"app": "a"}, {"app": "a"}),
        (LabelSelector({"app": "a"}), {"app": "a", **SERVES}, {"app": "a", **SERVES}),
        (LabelSelector({"app": "a"}, (EXPRESSION,)), {"app": "a", "tier": "b"}, {"app": "a", "tier": "b"}),
        (LabelSelector({}), {"app": "a"}, {"app": "a"}),
        (None, {"app": "a"}, {"app": "a"}),
        (None, {"app": "a", "kubevirt.io/vm-pool-revision-name": "web-1"}, {"app": "a"}),
        (LabelSelector({"vmi.kubevirt.io/id": "a"}), {"vmi.kubevirt.io/id": "a"}, {}),
    ],
)
def test_the_labels_of_the_selector_are_used_if_all_vmis_have_them(selector, labels, chosen):
    assert choose_selector(selector, labels) == chosen


@given(named=LABELS, labels=LABELS, expressions=st.sampled_from([None, (EXPRESSION,)]))
def test_every_vmi_has_the_selected_labels_and_they_are_empty_only_without_labels(named, labels, expressions):
    chosen = choose_selector(LabelSelector(named, expressions), labels)
    assert chosen.items() <= labels.items()
    assert not chosen.keys() & NOT_COMMON
    assert bool(chosen) == bool(labels.keys() - NOT_COMMON)


@pytest.mark.parametrize(
    "owner",
    [
        builders.replicaset(template_labels=None),
        builders.replicaset(template=None),
        builders.replicaset(template_labels={"kubevirt.io": "mine"}),
        pool_builders.pool(spec=pool_builders.vm_spec(labels={})),
        pool_builders.pool(spec={}),
        pool_builders.pool(virtualMachineTemplate=None),
    ],
)
def test_without_labels_there_is_nothing_to_select_by(owner):
    assert flaw(owner) == "its template has no labels for VMIs that a Service can select by"


def test_without_a_port_the_service_has_the_ports_of_the_interface_on_the_pod_network():
    spec = listening({"port": 22}, {"name": "dns", "port": 53, "protocol": "UDP"})
    ports = [{"name": "port-1", "port": 22}, {"name": "port-2", "port": 53, "protocol": "UDP"}]
    assert service(builders.replicaset(spec=spec), NO_PORTS)["spec"]["ports"] == ports
    inner = {"metadata": {"labels": {"app": "web"}}, "spec": json.loads(spec)}
    assert service(pool_builders.pool(spec={"template": inner}), NO_PORTS)["spec"]["ports"] == ports
    assert service(builders.replicaset(spec=spec))["spec"]["ports"] == [{"port": 27017, "targetPort": 22}]


@pytest.mark.parametrize(
    "spec",
    [
        b'{"domain":{"devices":{}}}',
        b'{"domain":null,"networks":null}',
        listening(),
        listening({"port": 22}, networks=[]),
        listening({"port": 22}, networks=[{"name": "default", "multus": {"networkName": "lan"}}]),
        listening({"port": 22}, network="second"),
    ],
)
def test_without_any_port_the_error_names_the_flag(spec):
    assert (
        flaw(builders.replicaset(spec=spec), NO_PORTS)
        == "its template has no ports on the Pod network: set the ports with --port"
    )


def test_an_unreadable_template_is_an_error_only_without_a_port():
    owner = builders.replicaset(spec=b'{"domain":[]}')
    assert flaw(owner, NO_PORTS).startswith("its template cannot be read: Expected")
    assert service(owner)["spec"]["ports"] == [{"port": 27017, "targetPort": 22}]
    assert flaw(pool_builders.pool(spec={"template": []})).startswith("its template cannot be read: Expected")


def test_all_options_are_in_the_manifest():
    wish = service_request(
        dict(
            name="s",
            port=80,
            target_port="web",
            protocol="UDP",
            port_name="http",
            type="NodePort",
            cluster_ip="None",
            external_ip="192.0.2.1",
            ip_family="IPv6,IPv4",
        ),
        "there",
    )
    made = service(builders.replicaset(), wish)
    assert (made["metadata"]["name"], made["metadata"]["namespace"]) == ("s", "there")
    assert made["spec"] == {
        "type": "NodePort",
        "selector": dict(builders.LABELS),
        "ports": [{"port": 80, "name": "http", "protocol": "UDP", "targetPort": "web"}],
        "clusterIP": "None",
        "externalIPs": ["192.0.2.1"],
        "ipFamilies": ["IPv6", "IPv4"],
        "ipFamilyPolicy": "PreferDualStack",
    }


def test_two_families_prefer_dual_stack_unless_a_policy_is_set():
    assert service_request(dict(ip_family="IPv4"), "").ip_family_policy == ""
    wish = service_request(dict(ip_family="IPv4,IPv6", ip_family_policy="RequireDualStack"), "")
    assert wish.ip_family_policy == "RequireDualStack"


PORT_RANGE = "is not in the range 1<=x<=65535"


OF_A_PORT = "expected the name of a port: up to 15 lowercase letters, digits and dashes, such as ssh"
NEEDS_PORT = "needs --port as well, because it describes that port; try 'kubectl vmherd expose --help'"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            "vmirs web --name S",
            "--name: 'S' is invalid; expected the name of a Service: lowercase letters, digits and dashes",
        ),
        ("vmirs web --name=s --port=0", f"--port: 0 {PORT_RANGE}"),
        ("vmirs web --name=s --port=65536", f"--port: 65536 {PORT_RANGE}"),
        (
            "vmirs web --name=s --port=1 --target-port=0",
            "--target-port: '0' is invalid; expected a port from 1 to 65535, or the name of a port",
        ),
        ("vmirs web --name=s --port=1 --target-port=SSH", f"--target-port: 'SSH' is invalid; {OF_A_PORT}"),
        ("vmirs web --name=s --port=1 --port-name=12345", f"--port-name: '12345' is invalid; {OF_A_PORT}"),
        (
            "vmirs web --name=s --port=1 --port-name=a234567890123456",
            f"--port-name: 'a234567890123456' is invalid; {OF_A_PORT}",
        ),
        ("vmirs web --name=s --target-port=22", f"--target-port {NEEDS_PORT}"),
        ("vmirs web --name=s --protocol udp", f"--protocol {NEEDS_PORT}"),
        ("vmirs web --name=s --protocol=SCTP", "--protocol: 'SCTP' is invalid; expected one of TCP, UDP"),
        (
            "vmirs web --name=s --type=ExternalName",
            "--type: 'ExternalName' is invalid; expected one of ClusterIP, NodePort, LoadBalancer",
        ),
        (
            "vmirs web --name=s --cluster-ip=x",
            "--cluster-ip: 'x' is invalid; expected an IP address, such as 192.0.2.1",
        ),
    ],
)
def test_a_wrong_call_is_one_line_and_exit_code_2(arguments, line, capsys):
    assert kubectl_vmherd(["expose", *arguments.split()]) == 2
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"error: {line}\n")


def test_the_variable_of_a_service_named_vmherd_does_not_set_the_port(capsys, monkeypatch):
    monkeypatch.setenv("VMHERD_PORT", "tcp://10.0.0.1:8080")
    assert kubectl_vmherd(["expose", "vmirs", "web", "--name=s", "--kubeconfig=/nowhere"]) == 1
    assert capsys.readouterr().err.startswith("error: no kubeconfig at /nowhere")


@pytest.mark.parametrize(("command", "explained"), [("takeover", False), ("run", True)])
def test_only_the_help_of_a_command_with_durations_explains_durations(
    command: str, explained: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "--help"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "A flag wins over its environment variable." in said
    assert ("A duration is written as 15s" in said) is explained
