"""The distribution `vmherd-informers`, installed alone in a new environment."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from sandbox.controlplane import ControlPlane
from tests.cluster import Kubectl
from tests.controlplane.waits import eventually
from tests.integration.test_example_controller import EXAMPLES, greeter, greeting, texts
from tests.releasing import trial
from tools.release import packages
from tools.release.project import ROOT, read_project

ABOUT = ROOT / "tools" / "release" / "informers.toml"


def test_its_dependencies_are_a_part_of_those_of_the_project() -> None:
    own, whole = (tomllib.loads(path.read_text())["project"] for path in (ABOUT, ROOT / "pyproject.toml"))
    assert set(own["dependencies"]) < set(whole["dependencies"])
    assert own["requires-python"] == whole["requires-python"]


@pytest.fixture
def python(tmp_path: Path) -> str:
    """The Python of an environment with the wheel and its dependencies, in the pinned versions."""
    sources = packages.informers(read_project(ROOT), ROOT, tmp_path / "sources")
    pip, quiet = [sys.executable, "-m", "pip"], ["--quiet", "--disable-pip-version-check"]
    wheels = ["--no-deps", "--no-build-isolation", "--wheel-dir", str(tmp_path)]
    subprocess.run([*pip, "wheel", *quiet, *wheels, str(sources)], check=True)
    [wheel] = tmp_path.glob("vmherd_informers-*.whl")
    return str(trial.installed(wheel, ROOT / ".ci" / "requirements-dev.txt", tmp_path))


@pytest.mark.cluster
@pytest.mark.e2e
def test_the_example_runs_without_vmherd(
    control_plane: ControlPlane, kubectl: Kubectl, python: str, tmp_path: Path
) -> None:
    where = "import informers, pathlib; print((pathlib.Path(informers.__file__).parent / 'py.typed').is_file())"
    done = subprocess.run([python, "-I", "-c", where], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
    assert subprocess.run([python, "-I", "-c", "import controller"], cwd=tmp_path, check=False).returncode == 1
    kubectl("apply", "-f", str(EXAMPLES / "greetings-crd.yaml"))
    with greeter(control_plane, tmp_path / "greeter.log", python, path=""):
        kubectl("wait", "--for=condition=Established", "crd/greetings.example.vmherd.dev", "--timeout=30s")
        kubectl.apply(greeting("alone", "hello"))
        eventually(lambda: texts(kubectl) == {"alone": "hello"})
