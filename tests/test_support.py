"""docs/support.md and docs/upgrading.md name the versions that the sources have."""

import re
import tomllib
from pathlib import Path

import yaml

from controller.preflight.versions import FIRST_WITH_BOTH_LOOPS, OLDEST
from sandbox.releases import KUBERNETES
from tools.chart.helm import MAJORS, pinned

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "support.md").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def state_of(version: str, section: str) -> str:
    """The state of a version in the table of a section, or "" if the table has no such row."""
    rows = PAGE.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    found = re.search(rf"^\| {re.escape(version)} \| (\w[\w ]*)", rows, re.MULTILINE)
    return found[1].strip() if found else ""


def test_the_tested_kubernetes_is_that_of_the_sandbox() -> None:
    assert state_of(KUBERNETES, "Kubernetes") == "tested"


def test_the_older_kubernetes_is_that_of_its_go_module() -> None:
    for module in (ROOT / "tools" / "kube").glob("v*/go.mod"):
        pinned = re.search(r"k8s\.io/kubernetes v(\S+)", module.read_text())
        assert pinned is not None
        assert state_of(pinned[1], "Kubernetes") == "tested"
        assert f"KUBERNETES={module.parent.name[1:]}" in PAGE
        assert f'"{module.parent.name[1:]}"' in (ROOT / ".github" / "workflows" / "ci.yml").read_text()


def test_the_oldest_kubernetes_is_that_of_the_chart() -> None:
    chart = yaml.safe_load((ROOT / "charts" / "vmherd" / "Chart.yaml").read_text())
    oldest = chart["kubeVersion"].removeprefix(">=").removesuffix(".0-0")
    assert f"vmherd needs Kubernetes {oldest} or newer" in PAGE


def test_the_versions_of_kubevirt_are_those_of_the_check_at_the_start() -> None:
    oldest, first = (".".join(map(str, version)) for version in (OLDEST, FIRST_WITH_BOTH_LOOPS))
    assert state_of(f"{oldest} to 1.8", "KubeVirt") == "imitated"
    assert state_of(f"older than {first}", "KubeVirt") == "not supported"


def test_the_oldest_python_is_tested() -> None:
    assert state_of(PROJECT["requires-python"].removeprefix(">="), "Python") == "tested"


def test_the_tested_versions_of_helm_are_the_pinned_versions() -> None:
    minors = " and ".join(pinned(major).removeprefix("v").rpartition(".")[0] for major in MAJORS)
    assert state_of(f"Helm {minors}", "Tools") == "tested"


def test_the_upgrade_notes_have_the_current_version() -> None:
    assert f"\n### {PROJECT['version']}\n" in (ROOT / "docs" / "upgrading.md").read_text()
