"""Other tests rely on these features of the control plane."""

import json
from pathlib import Path

import pytest

from sandbox.binaries import PROGRAMS, Binaries
from sandbox.controlplane import ControlPlane, ControlPlaneError, CrdError
from sandbox.processes import free_ports
from tests.cluster import Kubectl
from tests.controlplane.documents import vm_document, vmi_document
from tests.controlplane.programs import simulator
from tests.controlplane.waits import eventually
from tests.manifests.documents import SOUND, SOUND_POOL
from tests.programs import processes_about
from tests.rbac import person

pytestmark = pytest.mark.cluster


@pytest.mark.newest
def test_kubectl_and_server_have_the_same_version(kubectl: Kubectl) -> None:
    done = kubectl("version", "-o", "json")
    versions = json.loads(done.stdout)
    assert versions["serverVersion"]["gitVersion"] == versions["clientVersion"]["gitVersion"]
    assert done.stderr == ""


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


def test_a_claim_is_bound_when_its_storage_class_exists(control_plane: ControlPlane, kubectl: Kubectl) -> None:
    name = f"late-{kubectl.namespace}"
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "late"}}
    resources = {"requests": {"storage": "1Gi"}}
    early = {**claim, "metadata": {"name": "early"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": resources}}
    with simulator(control_plane):
        kubectl.create({**claim, "spec": {**early["spec"], "storageClassName": name}})
        kubectl.create(early)
        eventually(lambda: kubectl.json("get", "pvc", "early")["status"]["phase"] == "Bound")
        assert kubectl.json("get", "pvc", "late")["status"]["phase"] == "Pending"
        kind = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name}}
        kubectl.create({**kind, "provisioner": "sim.vmherd.dev"})
        eventually(lambda: kubectl.json("get", "pvc", "late")["status"]["phase"] == "Bound")
        kubectl("delete", "storageclass", name)
