"""Other tests rely on these features of the control plane."""

import json
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from sandbox.admin import Admin, Rejected
from sandbox.audit import read_records
from sandbox.binaries import PROGRAMS, Binaries
from sandbox.controlplane import ControlPlane, ControlPlaneError, CrdError
from sandbox.processes import free_ports
from tests.cluster import Kubectl
from tests.controlplane.documents import vm_document, vmi_document
from tests.manifests.documents import SOUND, SOUND_POOL
from tests.rbac import person
from tests.sandbox.patience import processes_about, wait_for

pytestmark = pytest.mark.cluster


CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}, "data": {"key": "value"}}


@pytest.mark.newest
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


def test_the_audit_log_has_each_request_with_its_user_its_answer_and_its_times(
    control_plane: ControlPlane, kubectl: Kubectl, namespace: str
) -> None:
    position, before = control_plane.audit_position(), datetime.now(UTC)
    kubectl("apply", "-f", "-", stdin=CONFIG_MAP)
    kubectl("get", "configmap", "two", check=False)

    def requests() -> Counter[tuple[str, str, str, int]]:
        return Counter(
            (record.verb, record.resource, record.name, record.code)
            for record in read_records(control_plane.audit_log, position)
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
    for record in read_records(control_plane.audit_log, position):
        if record.namespace != namespace or not record.user_agent.startswith("kubectl/"):
            continue  # a request that began earlier
        assert before <= record.request_received_timestamp <= record.stage_timestamp <= datetime.now(UTC)


def test_after_a_stop_no_process_is_left_even_if_a_port_was_taken_at_first(
    control_plane: ControlPlane, control_plane_binaries: Binaries, tmp_path: Path
) -> None:
    taken = int(control_plane.url.rpartition(":")[2])
    first = iter([[*free_ports(2), taken, *free_ports(1)]])
    plane = ControlPlane(tmp_path, control_plane_binaries, ports=lambda count: next(first, None) or free_ports(count))
    plane.start()
    assert set(plane.pids()) == set(PROGRAMS)
    assert len(processes_about(tmp_path)) == len(PROGRAMS)
    assert plane.url != control_plane.url
    plane.stop()
    assert processes_about(tmp_path) == []


def test_a_part_that_cannot_start_is_named_with_its_last_output(
    control_plane_binaries: Binaries, tmp_path: Path
) -> None:
    broken = {**control_plane_binaries, "kube-apiserver": Path("/bin/false")}
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


def test_an_editor_of_one_namespace_edits_sets_pools_and_vms_there_and_nowhere_else(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    editor, viewer = (person(control_plane, namespace, tmp_path, role) for role in ("edit", "view"))
    objects = (SOUND, SOUND_POOL, vm_document("vm"), vmi_document("vmi"))
    for document in objects:
        editor("create", "-f", "-", stdin=document)
        name = f"{document['kind']}/{document['metadata']['name']}"
        viewer("get", name)
        for verb in ("annotate", "label"):
            editor(verb, name, "a=b")
            assert "forbidden" in viewer(verb, name, "a=c", "--overwrite", check=False).stderr
        assert "forbidden" in editor("get", name, "--namespace=default", check=False).stderr
        assert "forbidden" in editor("create", "--namespace=default", "-f", "-", stdin=document, check=False).stderr
    for document in objects[:2]:
        editor("scale", f"{document['kind']}/{document['metadata']['name']}", "--replicas=0")
    assert "forbidden" in editor("get", "nodes", check=False).stderr
