"""`kubectl vmherd expose` with the real kubectl, and the Service that the command creates."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from sandbox.kubectl import kubectl_path
from tests.controlplane.namespace import SetNamespace
from tests.controlplane.waits import eventually

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ("--name", "vmiservice", "--port", "27017", "--target-port", "22")
SET = {"special": "vmi-ephemeral"}


class Shell:
    """kubectl with the project's plugin on the PATH and a context for the test's namespace."""

    def __init__(self, directory: Path, kubeconfig: Path, namespace: str) -> None:
        self.kubeconfig = directory / "context.kubeconfig"
        config = yaml.safe_load(kubeconfig.read_text())
        for context in config["contexts"]:
            context["context"]["namespace"] = namespace
        self.kubeconfig.write_text(yaml.safe_dump(config))
        self.programs = directory / "bin"
        self.programs.mkdir(exist_ok=True)
        self._install()

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("VMHERD_", "KUBE"))}
        kept["PATH"] = f"{self.programs}:{kept['PATH']}"
        return subprocess.run(
            [kubectl_path(), *arguments],
            env={**kept, "KUBECONFIG": str(self.kubeconfig)},
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )

    def expose(self, *arguments: str) -> str:
        done = self("vmherd", "expose", *arguments)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    def _install(self) -> None:
        """Write the script that pip creates for the project's entry point."""
        scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
        module, _, function = scripts["kubectl-vmherd"].partition(":")
        program = self.programs / "kubectl-vmherd"
        lines = [
            f"#!{sys.executable}",
            f"import sys; sys.path.insert(0, {str(ROOT)!r})",
            f"from {module} import {function}",
            f"sys.exit({function}())",
        ]
        program.write_text("\n".join(lines) + "\n")
        program.chmod(0o755)


@pytest.fixture
def shell(sets: SetNamespace, tmp_path: Path) -> Shell:
    return Shell(tmp_path, sets.plane.kubeconfig, sets.namespace)


def make_set(sets: SetNamespace, **fields: Any) -> None:
    """Create the set of the guide. Its template has the label `version`. Its selector does not have this label."""
    labels = {**SET, "version": "1"}
    sets.make(2, name="vmi-ephemeral", selector={"matchLabels": SET}, template_metadata={"labels": labels}, **fields)
    eventually(lambda: len(sets.alive()) == 2, what="the set has its VMIs")


def matching(sets: SetNamespace, selector: dict[str, str]) -> set[str]:
    """The VMIs that the API server selects by these labels."""
    asked = ",".join(f"{key}={value}" for key, value in selector.items())
    return {vmi["metadata"]["name"] for vmi in sets.kubectl.json("get", "vmi", "-l", asked)["items"]}


def test_the_command_of_the_guide_creates_a_service_for_every_vmi_of_a_set(sets: SetNamespace, shell: Shell) -> None:
    make_set(sets)
    sets.make_vmi("stranger", labels={"version": "1"})
    assert shell.expose("vmirs", "vmi-ephemeral", *GUIDE) == "service/vmiservice exposed\n"
    service = sets.kubectl.json("get", "service", "vmiservice")
    [port] = service["spec"]["ports"]
    assert (port["port"], port["targetPort"], port["protocol"]) == (27017, 22, "TCP")
    assert (service["spec"]["type"], service["spec"]["selector"]) == ("ClusterIP", SET)
    assert matching(sets, service["spec"]["selector"]) == set(sets.alive()) - {"stranger"}
    sets.change({"spec": {"template": {"metadata": {"labels": {"version": "2"}}}}}, name="vmi-ephemeral")
    sets.kubectl("scale", "vmirs", "vmi-ephemeral", "--replicas=3")
    eventually(lambda: len(matching(sets, SET)) == 3, what="the VMIs of a newer template are selected, too")
