"""The whole release: made twice from one commit, in two directories, with the same bytes. And the lock files: they fit
each supported Python.
"""

import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sandbox.kubectl import KubectlMissing, kubectl_path
from tests.cluster import skip_or_fail
from tests.environments import python_or_skip
from tests.helm import Helm
from tests.releasing import trial
from tools.release.plugin import NAME, PYTHONS, archive_name
from tools.release.project import ROOT, read_project

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]
VERSION = read_project(ROOT).version
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
LINUX = [
    tuple(f"{tag}_{machine}" for tag in ("manylinux_2_28", "manylinux_2_17", "manylinux2014")) for machine in MACHINES
]


@pytest.fixture(scope="module")
def tools() -> Path:
    return python_or_skip("release")


def a_copy(directory: Path) -> Path:
    """A repository with the files of this one in one commit. Uncommitted changes are part of the commit."""
    listed = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    for name in subprocess.run(listed, capture_output=True, text=True, check=True).stdout.rstrip("\0").split("\0"):
        if (ROOT / name).is_file():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, directory / name)
    date = "2026-11-22T10:00:00Z"
    who = {"NAME": "A test", "EMAIL": "test@example.com", "DATE": date}
    about = {f"GIT_{role}_{field}": text for role in ("AUTHOR", "COMMITTER") for field, text in who.items()}
    for command in (["init", "--quiet"], ["add", "--all"], ["commit", "--quiet", "--message", "A commit"]):
        subprocess.run(["git", *command], cwd=directory, env={**os.environ, **about}, check=True)
    return directory


def a_release(directory: Path, tools: Path, *options: str, umask: int = 0o022) -> dict[str, bytes]:
    root = a_copy(directory)
    command = [sys.executable, "-m", "tools.release", VERSION, "--tools", str(tools), "--rehearsal", *options]
    variables = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run(command, cwd=root, env=variables, capture_output=True, text=True, check=False, umask=umask)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing was pushed" in done.stdout
    return {path.name: path.read_bytes() for path in (root / "dist" / VERSION).iterdir()}


@pytest.fixture(scope="module")
def releases(tools: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, bytes]]:
    """The directory of a release, and the files of a second release of the same commit. Both are made at the same
    time.
    """
    root, other = tmp_path_factory.mktemp("first"), tmp_path_factory.mktemp("a") / "longer" / "path"
    with ThreadPoolExecutor() as threads:
        second = threads.submit(a_release, other, tools, umask=0o077)
        a_release(root, tools)
        return root / "dist" / VERSION, second.result()


@pytest.fixture(scope="module")
def release(releases: tuple[Path, dict[str, bytes]]) -> Path:
    return releases[0]


def test_two_releases_of_one_commit_have_the_same_bytes(releases: tuple[Path, dict[str, bytes]]) -> None:
    release, second = releases
    first = {path.name: path.read_bytes() for path in release.iterdir()}
    assert first.keys() == second.keys()
    assert [name for name in first if first[name] != second[name]] == []
    assert len(first) == 17


def test_the_checksums_hold_for_each_file(release: Path) -> None:
    command = ["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"]
    subprocess.run(command, cwd=release, check=True)
    listed = [line.split()[1] for line in (release / "SHA256SUMS").read_text().splitlines()]
    assert {*listed, "SHA256SUMS"} == {path.name for path in release.iterdir()}


def test_the_package_index_would_accept_the_packages(release: Path, tools: Path) -> None:
    variables = {**os.environ, "DIST": str(release), "UV": str(tools.with_name("uv"))}
    command = [str(ROOT / ".github" / "publish"), "wheel", "--dry-run"]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"vmherd(?:_informers)?-\S+(?:\.whl|\.tar\.gz)", done.stderr)) >= 4


def test_the_demo_runs_from_the_wheel(release: Path, tmp_path: Path) -> None:
    [wheel] = release.glob("vmherd-*.whl")
    python = trial.installed(Path(f"{wheel}[sandbox,cli]"), ROOT / ".ci" / "requirements-dev.txt", tmp_path)
    for program in ("vmherd", "kubectl-vmherd"):
        trial.run(python.with_name(program), "--version", cwd=tmp_path)
    trial.run(python.with_name("vmherd"), "demo", "--once", cwd=tmp_path)


@pytest.mark.parametrize("major", [3, 4])
def test_helm_accepts_the_chart_package(release: Path, major: int, tmp_path: Path) -> None:
    helm = Helm(major, tmp_path)
    chart = str(release / f"vmherd-{VERSION}.tgz")
    assert "0 chart(s) failed" in helm("lint", "--strict", "--set", "mode=standalone", chart).stdout
    assert helm("show", "readme", chart).stdout.startswith("# vmherd\n")
    assert "artifacthub.io/license" in helm("show", "chart", chart).stdout


@pytest.fixture
def unpacked(release: Path, tmp_path: Path) -> Path:
    project, machine = read_project(ROOT), MACHINES[platform.machine()]
    with tarfile.open(release / archive_name(project, f"linux-{machine}")) as archive:
        archive.extractall(tmp_path / "bin", filter="data")
    return tmp_path / "bin"


def test_the_plugin_runs_with_each_python(unpacked: Path) -> None:
    there = [(name, path) for name in PYTHONS if (path := shutil.which(f"python{name}"))]
    found = [(name, path) for name, path in there if subprocess.run([path, "-c", ""], check=False).returncode == 0]
    assert found, "one of these versions of Python starts"
    for name, python in found:
        printed = trial.run(python, unpacked / NAME, "version", PYTHONPATH="")
        assert printed.startswith(f"vmherd {VERSION} (Python {name}.")


def test_the_archive_is_a_plugin_of_kubectl(unpacked: Path) -> None:
    try:
        kubectl_path()
    except KubectlMissing as error:
        skip_or_fail(str(error))
    path = f"{unpacked}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    variables = {**os.environ, "PATH": path}
    kubectl = ["kubectl", "vmherd"]
    shown = subprocess.run([*kubectl, "version"], env=variables, capture_output=True, text=True, check=True)
    assert shown.stdout.startswith(f"vmherd {VERSION} (Python 3.")
    asked = [*kubectl, "list", "--kubeconfig", "/nowhere"]
    failed = subprocess.run(asked, env=variables, capture_output=True, text=True, check=False)
    assert (failed.returncode, failed.stdout, failed.stderr.count("\n")) == (1, "", 1)


@pytest.mark.parametrize("platforms", LINUX, ids=lambda platforms: platforms[0])
@pytest.mark.parametrize("python", PYTHONS)
def test_the_lock_files_have_a_wheel_for_each_python(platforms: tuple[str, ...], python: str, tmp_path: Path) -> None:
    """The workflow for continuous integration installs the lock file of developers with each Python."""
    locks = [f"--requirement={ROOT / '.ci' / f'requirements-{name}.txt'}" for name in ("run", "plugin")]
    chosen = [word for platform in platforms for word in ("--platform", platform)]
    chosen += ["--python-version", python, "--implementation", "cp", "--only-binary", ":all:", "--require-hashes"]
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--no-deps", "--target", str(tmp_path), *chosen]
    done = subprocess.run([*command, *locks], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Would install" in done.stdout
