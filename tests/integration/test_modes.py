"""The modes in a cluster with KubeVirt: how `auto` decides, when a start is refused, and `vmherd takeover`.

Some tests have a HyperConverged object that manages KubeVirt. They act as the HyperConverged operator, which writes the
spec of the KubeVirt object from the annotation.
"""

import contextlib
import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controller.preflight.permissions import check_permissions, permissions_needed
from controller.takeover import hyperconverged
from sandbox.admin import Admin, Rejected
from sandbox.controlplane import ControlPlane
from tests.cluster import new_namespace
from tests.controller.takeover.test_virt_controller import operated
from tests.controlplane.documents import open_definition
from tests.controlplane.namespace import SetNamespace
from tests.controlplane.programs import ControllerProcess, controller_process
from tests.controlplane.waits import eventually
from tests.integration.kubevirt_installation import NAMESPACE, OTHER, RESTING, KubeVirtInstallation, vmherd
from tests.release import LEASE, Pod, pod_that_may, settings

pytestmark = pytest.mark.cluster


@pytest.fixture
def kubevirt(kubevirt_plane: ControlPlane) -> Iterator[KubeVirtInstallation]:
    """An installed KubeVirt. Its controllers for sets and pools are active."""
    installation = KubeVirtInstallation(kubevirt_plane)
    installation.install()
    yield installation
    installation.uninstall()
    with contextlib.suppress(Rejected):  # not every test runs a controller that acquires the lease
        Admin(kubevirt_plane.kubeconfig).send("DELETE", LEASE)


@pytest.fixture
def namespace(kubevirt_plane: ControlPlane) -> Iterator[str]:
    with new_namespace(kubevirt_plane) as name:
        yield name


def knowing(plane: ControlPlane, *flags: str) -> Pod:
    """A Pod that may read KubeVirt's objects. The chart allows this only for a takeover."""
    looks = settings(plane, "--mode", "takeover")
    return pod_that_may(plane, {*permissions_needed(settings(plane, *flags)), *check_permissions(looks)})


def refusal(who: ControlPlane | Pod, directory: Path, *flags: str) -> str:
    """The only output line of the controller, which refuses to start."""
    with controller_process(who, directory, *flags, wait=False) as program:
        assert program.process.wait(40) == 1
        [line] = [line for line in program.log.read_text().splitlines() if line.startswith("vmherd: ")]
    return line


def mode_of(program: ControllerProcess) -> str:
    [line] = program.lines(msg="mode")
    return str(line["mode"])


def test_auto_is_alongside_if_kubevirt_is_installed_and_leaves_its_sets_alone(
    kubevirt: KubeVirtInstallation, namespace: str, tmp_path: Path
) -> None:
    theirs = SetNamespace(kubevirt.plane, namespace)
    ours = SetNamespace(kubevirt.plane, namespace, group="vmherd.dev")
    may = knowing(kubevirt.plane, "--mode", "alongside")
    with controller_process(may, tmp_path, "--mode", "auto") as program:
        ours.controller = program
        theirs.make(2, name="theirs")
        ours.make(1, name="ours")
        eventually(lambda: len(ours.alive()) == 1, what="our set has its VMI")
        ours.settle()
        assert len(theirs.alive()) == 1
        assert not theirs.status("theirs"), "KubeVirt's set stays as it is"
        assert mode_of(program) == "alongside"
        assert program.stop() == 0


def test_an_active_virt_controller_refuses_a_start(kubevirt: KubeVirtInstallation, tmp_path: Path) -> None:
    flags = ("--pool-group", "pool.vmherd.dev")
    line = refusal(knowing(kubevirt.plane, *flags), tmp_path, *flags)
    assert "Deployment kubevirt/virt-controller has no --rs-controller-threads=0" in line
    assert "--pool-controller-threads=0" not in line, "the pools of this vmherd have a group of its own"
    assert "vmherd takeover" in line


def test_a_recent_status_write_reveals_virt_controller_without_a_deployment(
    kubevirt: KubeVirtInstallation, namespace: str, tmp_path: Path
) -> None:
    sets = SetNamespace(kubevirt.plane, namespace)
    sets.make(0)
    kubevirt.kubectl("delete", "deployment", "virt-controller")
    patch = json.dumps({"status": {"replicas": 0, "readyReplicas": 0}})
    sets.kubectl(
        *("patch", "vmirs", "herd", "--subresource=status", "--type=merge", f"--patch={patch}"),
        "--field-manager=virt-controller",
    )
    looks = knowing(kubevirt.plane)
    line = refusal(looks, tmp_path, "--mode", "standalone")
    assert f"virt-controller wrote the status of virtualmachineinstancereplicasets.kubevirt.io {namespace}/herd" in line
    sets.kubectl("delete", "vmirs", "herd")
    with controller_process(looks, tmp_path, "--mode", "standalone") as program:
        assert program.lines(msg="KubeVirt has no virt-controller yet")
        assert program.stop() == 0


def test_the_output_of_a_dry_run_is_a_working_command(kubevirt: KubeVirtInstallation) -> None:
    line = vmherd(kubevirt.plane.kubeconfig, "takeover", "--dry-run").stdout.splitlines()[1]
    command, patch = line.split(" --patch ")
    assert command == "kubectl --namespace kubevirt patch kubevirts.kubevirt.io kubevirt --type json"
    kubevirt.kubectl(*command.split()[3:], f"--patch={patch.strip(chr(39))}")
    assert "already" in vmherd(kubevirt.plane.kubeconfig, "takeover").stdout


def test_a_takeover_from_beginning_to_end(kubevirt: KubeVirtInstallation, namespace: str, tmp_path: Path) -> None:
    """Take over, reconcile KubeVirt's sets, refuse `--undo` while the controller runs, and undo the takeover."""
    plane = kubevirt.plane
    kubevirt.install(patches=(OTHER,))
    assert vmherd(plane.kubeconfig, "takeover").returncode == 0
    first, ours = kubevirt.patches()
    assert (first, [step["value"] for step in json.loads(ours["patch"])]) == (OTHER, RESTING)
    kubevirt.operate()
    sets = SetNamespace(plane, namespace)
    with controller_process(plane, tmp_path, "--mode", "takeover") as program:
        sets.make(2)
        sets.wait_for(2)
        refused = vmherd(plane.kubeconfig, "takeover", "--undo")
        assert refused.returncode == 1
        assert "holds the lease vmherd-system/vmherd: stop it first" in refused.stderr
        assert program.stop() == 0
    assert vmherd(plane.kubeconfig, "takeover", "--undo").returncode == 0
    assert kubevirt.patches() == [OTHER]
    kubevirt.operate()
    assert kubevirt.args()[-1] == "2"
    assert "virt-controller has no" in refusal(plane, tmp_path, "--mode", "takeover")


HCO = "hyperconvergeds.hco.kubevirt.io"
NAME = "kubevirt-hyperconverged"
DEFINITION = open_definition("HyperConverged", HCO, "v1", "v1beta1", short_names=("hco",))


class Managed:
    """A KubeVirt installation that a HyperConverged object manages."""

    def __init__(self, installation: KubeVirtInstallation) -> None:
        self.installation = installation
        self.kubectl = installation.kubectl
        self.kubeconfig = installation.plane.kubeconfig

    def manage(self, steps: str) -> None:
        """Create the HyperConverged object with this annotation. It becomes the owner of the KubeVirt object."""
        metadata = {"name": NAME, "annotations": {hyperconverged.ANNOTATION: steps, "other": "kept"}}
        self.kubectl.apply({"apiVersion": "hco.kubevirt.io/v1", "kind": "HyperConverged", "metadata": metadata})
        uid = self.kubectl.json("get", HCO, NAME)["metadata"]["uid"]
        # Older operators wrote this version into the reference.
        owner = {"apiVersion": "hco.kubevirt.io/v1beta1", "kind": "HyperConverged", "name": NAME, "uid": uid}
        change = json.dumps({"metadata": {"ownerReferences": [owner]}})
        self.kubectl("patch", "kubevirts.kubevirt.io", "kubevirt", "--type=merge", "-p", change)
        self.operate()

    def annotations(self) -> dict[str, str]:
        return dict(self.kubectl.json("get", HCO, NAME)["metadata"]["annotations"])

    def steps(self) -> Any:
        return json.loads(self.annotations()[hyperconverged.ANNOTATION])

    def operate(self) -> None:
        """Write the spec that the operator writes, as a replacement of the whole spec."""
        found = self.kubectl.json("get", "kubevirts.kubevirt.io", "kubevirt")
        steps = self.annotations().get(hyperconverged.ANNOTATION)
        self.kubectl("replace", "-f", "-", stdin={**found, "spec": operated(json.loads(steps) if steps else [])})


@pytest.fixture
def managed(kubevirt_plane: ControlPlane) -> Iterator[Managed]:
    installation = KubeVirtInstallation(kubevirt_plane)
    installation.install()
    installation.kubectl.apply(DEFINITION)
    eventually(lambda: installation.kubectl("get", HCO, check=False).returncode == 0, what="HyperConverged is served")
    yield Managed(installation)
    installation.kubectl("delete", HCO, NAME, "--ignore-not-found")
    installation.uninstall()


def test_the_output_of_a_dry_run_is_a_command_that_changes_the_annotation(managed: Managed) -> None:
    managed.manage("[]")
    line = vmherd(managed.kubeconfig, "takeover", "--dry-run").stdout.splitlines()[1]
    assert managed.steps() == []
    program, *arguments = shlex.split(line)
    assert (program, arguments[:5]) == ("kubectl", ["--namespace", NAMESPACE, "patch", HCO, NAME])
    managed.kubectl(*arguments[2:])
    managed.operate()
    assert len(managed.installation.patches()) == 1
