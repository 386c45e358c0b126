"""Other tests rely on these features of the control plane."""

from __future__ import annotations

import asyncio
import http.server
import json
import ssl
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from sandbox.admin import Admin, Rejected
from sandbox.audit import AuditRecord
from sandbox.binaries import PROGRAMS, Binaries
from sandbox.controlplane import ControlPlane, ControlPlaneError
from sandbox.crds import CrdError
from sandbox.pki import Pki
from sandbox.processes import free_ports
from tests.cluster import Kubectl
from tests.sandbox.patience import processes_about, wait_for

pytestmark = pytest.mark.cluster


def config_map(name: str, owner: dict[str, Any] | None = None) -> dict[str, Any]:
    references = [] if owner is None else [owner_reference(owner)]
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "ownerReferences": references},
        "data": {"key": "value"},
    }


def owner_reference(owner: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
    }


VMI = {
    "apiVersion": "kubevirt.io/v1",
    "kind": "VirtualMachineInstance",
    "metadata": {"name": "owner"},
    "spec": {"domain": {"devices": {}}},
}


def test_kubectl_and_server_have_the_same_version(kubectl: Kubectl) -> None:
    done = kubectl("version", "-o", "json")
    versions = json.loads(done.stdout)
    assert versions["serverVersion"]["gitVersion"] == versions["clientVersion"]["gitVersion"]
    assert done.stderr == ""


@pytest.mark.parametrize("path", ["/openapi/v2", "/openapi/v3", "/openapi/v3/apis/kubevirt.io/v1"])
def test_the_server_publishes_its_schemas(control_plane: ControlPlane, path: str) -> None:
    # The API server publishes the schemas of new kinds after a delay.
    wait_for(lambda: answer_of(Admin(control_plane.kubeconfig), path))


def answer_of(admin: Admin, path: str) -> dict[str, Any]:
    """The answer of the API server, or {} if it rejects the request."""
    with suppress(Rejected):
        return dict(admin.get(path))
    return {}


def test_kubectl_explains_our_kinds(kubectl: Kubectl) -> None:
    wait_for(
        lambda: "VirtualMachineInstanceReplicaSet" in kubectl("explain", "vmirs.spec.template", check=False).stdout
    )


def test_kubectl_apply_names_a_field_that_does_not_exist(kubectl: Kubectl) -> None:
    done = kubectl("apply", "-f", "-", stdin={**config_map("typo"), "dta": {}}, check=False)
    assert done.returncode == 1
    assert 'unknown field "dta"' in done.stderr


def test_dependents_of_a_builtin_object_are_deleted_with_it(kubectl: Kubectl) -> None:
    kubectl.apply(config_map("owner"))
    kubectl.apply(config_map("dependent", owner=kubectl.json("get", "configmap", "owner")))
    kubectl("delete", "configmap", "owner")
    kubectl("wait", "--for=delete", "configmap/dependent", "--timeout=60s")


def test_dependents_of_a_custom_object_are_deleted_with_it_from_the_start(kubectl: Kubectl) -> None:
    kubectl.apply(VMI)
    kubectl.apply(config_map("dependent", owner=kubectl.json("get", "vmi", "owner")))
    kubectl("delete", "vmi", "owner")
    # The garbage collector looks for new kinds every 30 seconds. This timeout is shorter.
    kubectl("wait", "--for=delete", "configmap/dependent", "--timeout=20s")


def test_orphans_stay(kubectl: Kubectl) -> None:
    kubectl.apply(config_map("owner"))
    kubectl.apply(config_map("dependent", owner=kubectl.json("get", "configmap", "owner")))
    kubectl("delete", "configmap", "owner", "--cascade=orphan")
    assert "ownerReferences" not in kubectl.json("get", "configmap", "dependent")["metadata"]


def test_a_namespace_is_deleted_with_all_its_objects(control_plane: ControlPlane, namespace: str) -> None:
    kubectl = Kubectl(control_plane.kubeconfig)
    kubectl("create", "namespace", f"{namespace}-short")
    Kubectl(control_plane.kubeconfig, f"{namespace}-short").apply(VMI, config_map("some"))
    kubectl("delete", "namespace", f"{namespace}-short", "--timeout=60s")


def test_another_user_has_only_granted_permissions(
    control_plane: ControlPlane, kubectl: Kubectl, namespace: str, tmp_path: Path
) -> None:
    jane = Kubectl(control_plane.write_kubeconfig(tmp_path / "jane", f"jane-{namespace}", "readers"), namespace)
    assert 'User "jane-' in jane("get", "configmaps", check=False).stderr
    kubectl("create", "rolebinding", "readers", "--clusterrole=view", "--group=readers")
    wait_for(lambda: jane("get", "configmaps", check=False).returncode == 0)
    assert "cannot create resource" in jane("create", "configmap", "new", check=False).stderr


def test_a_token_of_a_service_account_is_accepted(
    control_plane: ControlPlane, kubectl: Kubectl, namespace: str, tmp_path: Path
) -> None:
    kubectl("create", "serviceaccount", "robot")
    token = kubectl("create", "token", "robot").stdout.strip()
    robot = Kubectl(control_plane.write_kubeconfig(tmp_path / "robot", "robot", token=token), namespace)
    assert robot.json("auth", "whoami")["status"]["userInfo"]["username"] == f"system:serviceaccount:{namespace}:robot"
    assert "Forbidden" in robot("get", "pods", check=False).stderr


def test_rules_are_aggregated_into_the_roles_of_users(kubectl: Kubectl, namespace: str) -> None:
    kubectl.apply(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": namespace, "labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}},
            "rules": [{"apiGroups": [namespace], "resources": ["things"], "verbs": ["get"]}],
        }
    )
    wait_for(lambda: namespace in json.dumps(kubectl.json("get", "clusterrole", "view")["rules"]))
    kubectl("delete", "clusterrole", namespace)


def test_the_audit_log_has_each_request_with_its_user_and_its_answer(
    control_plane: ControlPlane, kubectl: Kubectl, namespace: str
) -> None:
    position = control_plane.audit_position()
    kubectl("apply", "-f", "-", stdin=config_map("one"))
    kubectl("get", "configmap", "two", check=False)

    def requests() -> Counter[tuple[str, str, str, int]]:
        return Counter(
            (record.verb, record.resource, record.name, record.code)
            for record in control_plane.audit_records(position)
            if (record.namespace, record.resource) == (namespace, "configmaps")
            and record.username == "vmherd-sandbox-admin"
            and record.user_agent.startswith("kubectl/")
        )

    expected = {
        ("get", "configmaps", "one", 404): 1,
        ("create", "configmaps", "one", 201): 1,
        ("get", "configmaps", "two", 404): 1,
    }
    wait_for(lambda: sum(requests().values()) >= len(expected))
    assert requests() == expected


def test_the_audit_log_has_the_times_of_a_request_and_of_its_answer(
    control_plane: ControlPlane, kubectl: Kubectl
) -> None:
    before = datetime.now(UTC)
    kubectl("get", "configmaps")

    def records() -> list[AuditRecord]:
        found = control_plane.audit_records()
        return [each for each in found if each.resource == "configmaps" and each.namespace == kubectl.namespace]

    wait_for(records)
    for record in records():
        assert before <= record.request_received_timestamp <= record.stage_timestamp <= datetime.now(UTC)


async def test_the_api_server_starts_again_on_its_port_with_all_objects(
    control_plane: ControlPlane, kubectl: Kubectl
) -> None:
    kubectl.apply(config_map("lasting"))
    url = control_plane.url
    await asyncio.to_thread(control_plane.stop_apiserver)
    try:
        assert kubectl("get", "configmaps", check=False).returncode == 1
        assert control_plane.failed() == ""
    finally:
        await asyncio.to_thread(control_plane.start_apiserver)
    assert control_plane.url == url
    assert kubectl.json("get", "configmap", "lasting")["data"] == {"key": "value"}


def test_an_api_server_on_this_machine_can_be_aggregated(
    control_plane: ControlPlane, kubectl: Kubectl, namespace: str, metrics_port: int
) -> None:
    group = "custom.metrics.k8s.io"
    service = {"type": "ExternalName", "externalName": "localhost"}
    kubectl.apply(
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "metrics"}, "spec": service},
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": f"v1beta2.{group}"},
            "spec": {
                "group": group,
                "version": "v1beta2",
                "service": {"namespace": namespace, "name": "metrics", "port": metrics_port},
                "insecureSkipTLSVerify": True,
                "groupPriorityMinimum": 100,
                "versionPriority": 100,
            },
        },
    )
    try:
        kubectl("wait", "--for=condition=Available", f"apiservice/v1beta2.{group}", "--timeout=60s")
        # The part of the API server that forwards requests sees this condition later.
        admin, path = Admin(control_plane.kubeconfig), f"/apis/{group}/v1beta2/hello"
        wait_for(lambda: answer_of(admin, path).get("user") == "vmherd-sandbox-admin")
    finally:
        kubectl("delete", "apiservice", f"v1beta2.{group}")


@pytest.fixture
def metrics_port(tmp_path: Path) -> Iterator[int]:
    """The port of a server that answers each request with the user name from the API server's headers."""

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps({"kind": "APIResourceList", "resources": [], "user": self.headers["X-Remote-User"]})
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    identity = Pki(tmp_path / "pki").server()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(identity.certificate, identity.key)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def test_after_a_stop_no_process_is_left_even_if_a_port_was_taken_at_first(
    control_plane: ControlPlane, control_plane_binaries: Binaries, tmp_path: Path
) -> None:
    taken = int(control_plane.url.rpartition(":")[2])
    first = iter([[*free_ports(2), taken, *free_ports(1)]])
    plane = ControlPlane(tmp_path, control_plane_binaries, ports=lambda count: next(first, None) or free_ports(count))
    plane.start()
    references = plane.references()
    assert set(references) == set(PROGRAMS)
    assert all(ref.alive for ref in references.values())
    assert plane.url != control_plane.url
    plane.stop()
    assert not any(ref.alive for ref in references.values())
    assert processes_about(tmp_path) == []


def test_a_part_that_cannot_start_is_named_with_its_last_output(
    control_plane_binaries: Binaries, tmp_path: Path
) -> None:
    broken = Binaries({**control_plane_binaries.paths, "kube-apiserver": Path("/bin/false")})
    with pytest.raises(ControlPlaneError, match=r"^kube-apiserver ended:"):
        ControlPlane(tmp_path, broken).start()
    assert processes_about(tmp_path) == []


def test_a_definition_that_the_server_refuses_is_named_and_no_process_is_left(
    control_plane_binaries: Binaries, tmp_path: Path
) -> None:
    (tmp_path / "crds").mkdir()
    bad = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "a.b"}}
    (tmp_path / "crds" / "bad.yaml").write_text(json.dumps({**bad, "spec": {"group": "b", "scope": "Namespaced"}}))
    plane = ControlPlane(tmp_path / "plane", control_plane_binaries, crd_directories=[tmp_path / "crds"])
    with pytest.raises(CrdError, match=r"^a\.b: .*spec\.names"):
        plane.start()
    assert processes_about(tmp_path) == []
