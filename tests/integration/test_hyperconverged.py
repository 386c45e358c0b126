"""`vmherd takeover` beside a HyperConverged object that manages KubeVirt.

The test acts as the HyperConverged operator: it writes the spec of the KubeVirt object from the annotation.
"""

import json
import shlex
from collections.abc import Iterator
from typing import Any

import pytest

from sandbox.controlplane import ControlPlane
from tests.controller.takeover.test_hyperconverged import ANNOTATION, GATE, LIST, OTHER, operated
from tests.controlplane.documents import open_definition
from tests.controlplane.waits import eventually
from tests.integration.kubevirt_installation import NAMESPACE, RESTING, KubeVirtInstallation, vmherd

pytestmark = pytest.mark.cluster

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
        metadata = {"name": NAME, "annotations": {ANNOTATION: steps, "other": "kept"}}
        self.kubectl.apply({"apiVersion": "hco.kubevirt.io/v1", "kind": "HyperConverged", "metadata": metadata})
        uid = self.kubectl.json("get", HCO, NAME)["metadata"]["uid"]
        # Older operators wrote this version into the reference.
        owner = {"apiVersion": "hco.kubevirt.io/v1beta1", "kind": "HyperConverged", "name": NAME, "uid": uid}
        self._change("kubevirts.kubevirt.io", "kubevirt", {"metadata": {"ownerReferences": [owner]}})
        self.operate()

    def annotations(self) -> dict[str, str]:
        found: dict[str, str] = self.kubectl.json("get", HCO, NAME)["metadata"]["annotations"]
        return found

    def steps(self) -> Any:
        return json.loads(self.annotations()[ANNOTATION])

    def operate(self) -> None:
        """Write the spec that the operator writes, as a replacement of the whole spec."""
        found = self.kubectl.json("get", "kubevirts.kubevirt.io", "kubevirt")
        steps = self.annotations().get(ANNOTATION)
        self.kubectl("replace", "-f", "-", stdin={**found, "spec": operated(json.loads(steps) if steps else [])})

    def _change(self, kind: str, name: str, change: dict[str, Any]) -> None:
        self.kubectl("patch", kind, name, "--type=merge", "-p", json.dumps(change))


@pytest.fixture
def managed(kubevirt_plane: ControlPlane) -> Iterator[Managed]:
    installation = KubeVirtInstallation(kubevirt_plane)
    installation.install()
    installation.kubectl.apply(DEFINITION)
    eventually(lambda: installation.kubectl("get", HCO, check=False).returncode == 0, what="HyperConverged is served")
    yield Managed(installation)
    installation.kubectl("delete", HCO, NAME, "--ignore-not-found")
    installation.uninstall()


def test_a_takeover_goes_through_the_annotation_and_keeps_its_other_steps(managed: Managed) -> None:
    managed.manage(json.dumps([GATE, LIST]))
    before = managed.installation.patches()
    assert before == [OTHER]
    done = vmherd(managed.kubeconfig, "takeover")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"patched HyperConverged {NAMESPACE}/{NAME}: virt-controller restarts without")
    assert managed.installation.patches() == before, "the operator has not worked yet"
    assert managed.steps()[:2] == [GATE, LIST]
    assert managed.annotations()["other"] == "kept"
    managed.operate()
    other, ours = managed.installation.patches()
    assert other == OTHER
    assert [step["value"] for step in json.loads(ours["patch"])] == RESTING
    assert "has the patch already" in vmherd(managed.kubeconfig, "takeover").stdout
    undone = vmherd(managed.kubeconfig, "takeover", "--undo")
    assert (undone.returncode, undone.stderr) == (0, "")
    assert managed.steps() == [GATE, LIST]
    managed.operate()
    assert managed.installation.patches() == [OTHER]
    assert "nothing to undo" in vmherd(managed.kubeconfig, "takeover", "--undo").stdout


def test_the_output_of_a_dry_run_is_a_command_that_changes_the_annotation(managed: Managed) -> None:
    managed.manage("[]")
    line = vmherd(managed.kubeconfig, "takeover", "--dry-run").stdout.splitlines()[1]
    assert managed.steps() == []
    program, *arguments = shlex.split(line)
    assert (program, arguments[:5]) == ("kubectl", ["--namespace", NAMESPACE, "patch", HCO, NAME])
    managed.kubectl(*arguments[2:])
    managed.operate()
    assert len(managed.installation.patches()) == 1
