"""The workflows of the repository's host, and dry runs of what they publish."""

import re
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from sandbox.processes import free_ports
from tests import gomodules
from tests.controlplane.waits import eventually
from tests.environments import python_or_skip
from tests.helm import helm_or_skip
from tools.chart.generated import CHART
from tools.release.project import ROOT, read_project

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
VERSION = read_project(ROOT).version


def jobs_of(name: str) -> dict[str, Any]:
    return dict(yaml.safe_load((ROOT / ".github" / "workflows" / f"{name}.yml").read_text())["jobs"])


JOBS = jobs_of("release")


def run(*command: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    words = [str(word) for word in command]
    return subprocess.run(words, cwd=ROOT, env=variables or None, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_each_job_has_only_the_permissions_that_it_names_and_a_time_limit(workflow: Path) -> None:
    content = yaml.safe_load(workflow.read_text())
    assert content["permissions"] == {}
    for job in content["jobs"].values():
        assert job["permissions"]["contents"] == ("write" if "draft" in str(job) else "read")
        assert job["timeout-minutes"]


def test_the_build_of_a_release_has_no_right_and_each_job_with_a_right_checks_its_files_first() -> None:
    assert JOBS["build"]["permissions"] == {"contents": "read"}
    assert "make release" in str(JOBS["build"])
    assert not re.search(r"actions/checkout|make |pip |python", str(JOBS["release"]["steps"])), "it runs no built code"
    assert JOBS["release"]["needs"] == ["build", "test"], "nothing is stored or published before the checks pass"
    assert ".ci/run" in str(JOBS["test"]["steps"])
    assert JOBS["test"]["permissions"] == {"contents": "read"}
    for name, source in {"release": "build", "chart": "release", "wheel": "release"}.items():
        assert source in JOBS[name]["needs"]
        steps = [step.get("run") or step["uses"].partition("@")[0] for step in JOBS[name]["steps"]]
        taken = steps.index("actions/download-artifact")
        assert 'sha256sum --check <<< "$DIGEST  SHA256SUMS"\nsha256sum --check --strict SHA256SUMS' in steps[taken + 1]
        assert JOBS[name]["steps"][taken + 1]["env"]["DIGEST"] == f"${{{{ needs.{source}.outputs.digest }}}}"
    assert JOBS["release"]["outputs"]["digest"] == "${{ needs.build.outputs.digest }}"


def test_the_check_of_the_files_finds_a_changed_file_and_a_changed_list(tmp_path: Path) -> None:
    [output] = [step["run"] for step in JOBS["build"]["steps"] if step.get("id") == "files"]
    [check] = [step["run"] for step in JOBS["release"]["steps"] if "DIGEST" in step.get("env", {})]

    def shell(script: str, **variables: str) -> int:
        words = ("bash", "-e", "-o", "pipefail", "-c", f"cd {tmp_path}\n{script}")
        return run(*words, PATH="/usr/bin:/bin", **variables).returncode

    (tmp_path / "wheel").write_text("built")
    assert shell("sha256sum wheel > SHA256SUMS") == 0
    assert shell(output, GITHUB_OUTPUT=str(tmp_path / "output")) == 0
    digest = (tmp_path / "output").read_text().strip().removeprefix("digest=")
    assert shell(check, DIGEST=digest) == 0
    (tmp_path / "wheel").write_text("changed")
    assert shell(check, DIGEST=digest) != 0
    assert shell("sha256sum wheel > SHA256SUMS") == 0
    assert shell(check, DIGEST=digest) != 0


def test_each_python_of_the_project_is_tested_and_a_failure_of_no_other_stops_a_change() -> None:
    job = jobs_of("ci")["test"]
    versions = job["strategy"]["matrix"]["python"]
    classifiers = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text())
    assert versions[: len(classifiers)] == classifiers
    assert job["continue-on-error"] == f"${{{{ matrix.python == '{versions[-1]}' }}}}"
    assert versions[len(classifiers) :] == [versions[-1]]


def test_each_action_is_pinned_by_its_digest_and_each_has_one_version() -> None:
    used = re.findall(r"uses: (\S+?)@(\S+?)  # (v\S+)$", "\n".join(p.read_text() for p in WORKFLOWS), re.MULTILINE)
    assert len(used) == sum(path.read_text().count("uses:") for path in WORKFLOWS)
    assert all(re.fullmatch(r"[0-9a-f]{40}", digest) for _, digest, _ in used)
    assert len(set(used)) == len({action for action, *_ in used})


def test_each_publishing_job_is_off_until_its_owner_sets_a_variable() -> None:
    page = (ROOT / "docs" / "releasing.md").read_text()
    for name in JOBS.keys() - {"build", "test", "release"}:
        [variable] = re.findall(r"^vars\.(\w+) [!=]= '\w*'$", JOBS[name]["if"])
        assert f"`{variable}`" in page
        assert f".github/publish {name} --dry-run" in page


def test_the_image_of_each_platform_is_scanned() -> None:
    """The scanner cannot read an archive with several platforms, so each scan gets the archive of one."""
    steps = jobs_of("ci")["image"]["steps"]
    scanned = [step["with"]["image"] for step in steps if "scan-action" in step.get("uses", "")]
    publish = (ROOT / ".github" / "publish").read_text()
    [platforms] = re.findall(r'--platform "(linux/\w+(?:,linux/\w+)+)"', publish)
    names = [each.removeprefix("linux/") for each in platforms.split(",")]
    assert f"for name in {' '.join(names)}; do" in publish
    assert scanned == [f"oci-archive:dist/{name}.tar" for name in names]


@pytest.mark.e2e
def test_the_linters_of_workflows_find_nothing() -> None:
    done = run(gomodules.check_or_skip("actionlint"), "-shellcheck=", "-pyflakes=")
    assert (done.returncode, done.stdout) == (0, "")
    zizmor = python_or_skip("workflows").with_name("zizmor")
    done = run(zizmor, "--offline", "--no-progress", "--persona=pedantic", ".github")
    assert done.returncode == 0, done.stdout


def answers(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def registry() -> Iterator[str]:
    """The address of a new registry on loopback."""
    [port] = free_ports(1)
    command = [str(gomodules.check_or_skip("registry")), "-port", str(port)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            eventually(lambda: answers(port), what="the registry answers")
            yield f"127.0.0.1:{port}"
        finally:
            process.terminate()


@pytest.mark.e2e
def test_the_chart_is_pushed_and_read_back(registry: str, tmp_path: Path) -> None:
    helm = helm_or_skip(4)
    run(helm, "package", CHART, "--destination", tmp_path)
    publish = (ROOT / ".github" / "publish", "chart", "--dry-run")
    variables = {"HELM": str(helm), "DIST": str(tmp_path), "HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    done = run(*publish, CHARTS=f"oci://{registry}/charts", **variables)
    assert re.search(
        rf"^pushed oci://{registry}/charts/vmherd:\S+ with the digest sha256:\S+$", done.stdout, re.MULTILINE
    )
    done = run(*publish, CHARTS="oci://example.com/charts", **variables)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "a dry run needs a registry on 127.0.0.1" in done.stderr
