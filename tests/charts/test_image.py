"""The image: the linter accepts the Dockerfile. The built image has a working program, and no files that the program
does not need.
"""

import json
import re
import subprocess
from typing import Any

import pytest

from controller.version import version
from tests.environments import python_or_skip
from tests.realnode.image import Image, base, built
from tools.chart.generated import ROOT
from tools.python import MINOR

SOURCE = (ROOT / "Dockerfile").read_text()
pytestmark = pytest.mark.e2e
LARGEST_MB = 110
PINS = re.compile(r"^(?P<name>[\w.-]+)==(?P<version>\S+)(?: ;.*)? \\$", re.MULTILINE)


LIST = "import json, os, sys; print(json.dumps({path: os.listdir(path) for path in sys.argv[1:]}))"
PACKAGES = f"/app/lib/python{MINOR}/site-packages"


@pytest.fixture(scope="module")
def image() -> Image:
    return built()


def files(image: Image, *paths: str) -> Any:
    return json.loads(image.run("python", "-c", LIST, *paths).stdout)


def test_hadolint_reports_no_problem() -> None:
    command = [str(python_or_skip("workflows").with_name("hadolint")), "--no-color", str(ROOT / "Dockerfile")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.timeout(400)
def test_the_programs_of_the_image_run(image: Image) -> None:
    for program in ("vmherd", "kubectl-vmherd"):
        assert image.run(program, "--version").stdout.startswith(f"vmherd {version()} ")
    start = [*image.settings["Entrypoint"], *image.settings["Cmd"]]
    assert "--replicaset-group" in image.run(*start, "--help").stdout
    stopped = image.run(*start, "--kubeconfig", "/nowhere", "--metrics-bind-address=0")
    assert (stopped.returncode, stopped.stderr.partition("\n")[0].count("/nowhere")) == (1, 1)


@pytest.mark.timeout(400)
def test_the_image_contains_nothing_superfluous(image: Image) -> None:
    found = files(image, "/", "/app/bin", PACKAGES)
    packages = set(found[PACKAGES])
    assert {"controller", "informers"} <= packages
    assert packages & {"pip", "setuptools", "sandbox", "tests", "rich", "hypothesis", "wheel"} == set()
    assert not [name for name in found["/app/bin"] if name.startswith("pip")]
    assert image.run("python", "-m", "pip", "--version").returncode != 0
    below = set(files(base(), "/")["/"])
    assert set(found["/"]) - below == {"app"}, "nothing of the build but what was copied"


@pytest.mark.timeout(400)
def test_the_image_contains_exactly_the_pinned_packages(image: Image) -> None:
    pins = PINS.findall((ROOT / ".ci" / "requirements-run.txt").read_text())
    pinned = {name.lower().replace("_", "-"): text for name, text in pins}
    names = files(image, PACKAGES)[PACKAGES]
    found = (name.removesuffix(".dist-info").split("-") for name in names if name.endswith(".dist-info"))
    versions = {name.lower().replace("_", "-"): text for name, text in found}
    assert versions.pop("vmherd") == version()
    assert versions.items() <= pinned.items()
    assert len(versions) > 10


@pytest.mark.timeout(400)
def test_the_image_runs_as_a_numeric_user_that_is_not_root_and_has_labels(image: Image) -> None:
    settings = image.settings
    assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", settings["User"])
    assert (settings["Entrypoint"], settings["Cmd"]) == (["vmherd"], ["run"])
    assert settings["Labels"]["org.opencontainers.image.version"] == version()
    assert settings["Labels"]["org.opencontainers.image.licenses"] == "Apache-2.0"
    assert "PYTHONUNBUFFERED=1" in settings["Env"]


def test_all_stages_have_the_same_base_image_pinned_to_a_patch_release() -> None:
    [image] = re.findall(r"^ARG PYTHON_IMAGE=(\S+)$", SOURCE, re.MULTILINE)
    assert re.fullmatch(r"python:3\.\d+\.\d+-slim-\w+(@sha256:[0-9a-f]{64})?", image)
    assert re.findall(r"^FROM (\S+)", SOURCE, re.MULTILINE) == ["${PYTHON_IMAGE}"] * 2


def test_the_image_and_developers_use_the_same_build_packages() -> None:
    builds, everything = ((ROOT / ".ci" / f"requirements-{name}.txt").read_text() for name in ("build", "dev"))
    pins = builds[builds.index("setuptools==") :]
    assert pins.rstrip() in everything


def test_the_build_context_has_only_what_the_dockerfile_copies() -> None:
    rules = (ROOT / ".dockerignore").read_text().splitlines()
    copied = re.findall(r"^COPY (?!--)(.+) \S+$", SOURCE, re.MULTILINE)
    assert rules[1] == "*"
    assert {rule[1:] for rule in rules if rule.startswith("!")} == {name for each in copied for name in each.split()}
    assert "**/__pycache__" in rules


@pytest.mark.timeout(400)
def test_the_image_is_small_and_its_compiled_modules_contain_no_times(image: Image) -> None:
    """A compiled module with the hash of its source is the same after each build. One with a time is not."""
    code = (
        "import pathlib; files = [f for f in pathlib.Path('/app').rglob('*') if f.is_file() and not f.is_symlink()]; "
        "compiled = [f for f in files if f.suffix == '.pyc']; "
        "print(len(compiled), sum(not f.read_bytes()[4] & 1 for f in compiled), sum(f.stat().st_size for f in files))"
    )
    compiled, with_time, size = map(int, image.run("python", "-c", code).stdout.split())
    assert compiled > 500
    assert with_time == 0
    assert size < LARGEST_MB * 1e6
