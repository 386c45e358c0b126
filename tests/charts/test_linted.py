"""The rendered chart passes a linter for security and reliability."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.charts.test_pods import HOOKS
from tests.charts.test_releases import EVERYTHING
from tests.checkov import Checkov, CheckovMissing, Finding
from tests.cluster import skip_or_fail
from tests.helm import Helm, container

KUBEVIRT = ("kubevirt.io/v1/KubeVirt",)
MODES = {"standalone": (), "takeover": KUBEVIRT, "alongside": KUBEVIRT}
STRICT = {
    **EVERYTHING,
    "image": {"digest": f"sha256:{'0' * 64}", "pullPolicy": "Always"},
    "podSecurityContext": {"runAsUser": 65532},
}

RIGHT: dict[tuple[str, str], str] = {
    ("CKV_K8S_11", "Deployment"): "A CPU limit would throttle a leader until it misses its lease.",
    ("CKV_K8S_11", "Pod"): "The test's Pod reads one page and ends: there is no CPU to keep it from.",
    ("CKV_K8S_38", "Deployment"): "Its work is to talk to the API server, for which it needs the token.",
    ("CKV_K8S_8", "Pod"): "Nothing has to restart the test's Pod: it ends by itself, and has a deadline.",
    ("CKV_K8S_11", "Job"): "A Job does little work and ends: there is no CPU to keep it from.",
    ("CKV_K8S_38", "Job"): "Its work is to talk to the API server, for which it needs the token.",
    ("CKV_K8S_9", "Pod"): "Nobody sends the test's Pod requests that it could be ready for.",
}
"""Checks that fail with every set of values. Each entry says why the failure is acceptable."""

CHOSEN: dict[tuple[str, str], str] = {
    ("CKV_K8S_43", "Deployment"): "The builder of the image sets its digest: `image.digest`.",
    ("CKV_K8S_43", "Job"): "The builder of the image sets its digest: `image.digest`.",
    ("CKV_K8S_15", "Job"): "It is the controller's image, pulled as that one is.",
    ("CKV_K8S_40", "Job"): "It is the controller's image, with the same user.",
    ("CKV_K8S_43", "Pod"): "The builder of the image sets its digest: `image.digest`.",
    ("CKV_K8S_15", "Deployment"): "A version's tag stays what it is, and a registry that is away stops no failover.",
    ("CKV_K8S_15", "Pod"): "It is the controller's image, pulled as that one is.",
    (
        "CKV_K8S_40",
        "Deployment",
    ): "The image names user 65532; a cluster that gives out users by itself takes no other.",
    ("CKV_K8S_40", "Pod"): "It is the controller's image, with the same user.",
    ("CKV2_K8S_6", "Pod"): "A policy of ours would be wrong where the API server or the scraper is elsewhere.",
}
"""Checks that fail with the default values and pass with the values of STRICT. Each entry gives the reason."""

ASKED: dict[tuple[str, str], str] = {
    ("CKV_K8S_35", "Deployment"): "These values ask for a Secret in the environment, to see it rendered.",
}

WEAK = {"allowPrivilegeEscalation": True, "readOnlyRootFilesystem": False, "privileged": True, "capabilities": None}
WEAKER = {"CKV_K8S_20", "CKV_K8S_22", "CKV_K8S_16", "CKV_K8S_37"}
ALMIGHTY = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "almighty"},
    "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}],
}


@pytest.fixture(scope="session")
def linter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkov]:
    """`conftest.py` installs checkov before the first test. The installation takes longer than a test's timeout."""
    try:
        linter = Checkov(tmp_path_factory.mktemp("checkov"))
    except CheckovMissing as error:
        skip_or_fail(str(error))
    yield linter
    linter.close()


def unexcused(findings: list[Finding], *excuses: dict[tuple[str, str], str]) -> list[str]:
    """The findings of the linter that are not listed in `excuses`."""
    excused = {key for reasons in excuses for key in reasons}
    return [str(each) for each in findings if (each.check, each.kind) not in excused]


@pytest.mark.parametrize("values", [{}, STRICT], ids=["defaults", "strict"])
def test_the_jobs_of_the_hooks_pass(linter: Checkov, helm: Helm, values: dict[str, Any], tmp_path: Path) -> None:
    objects = helm.render({**values, **HOOKS}, kinds=KUBEVIRT)
    assert unexcused(linter.findings(objects, tmp_path), RIGHT, ASKED if values else CHOSEN) == []


@pytest.mark.parametrize("mode", MODES)
def test_the_defaults_pass(linter: Checkov, helm: Helm, mode: str, tmp_path: Path) -> None:
    assert unexcused(linter.findings(helm.render({"mode": mode}, kinds=MODES[mode]), tmp_path), RIGHT, CHOSEN) == []


@pytest.mark.parametrize("mode", MODES)
def test_with_strict_values_the_excused_checks_pass_too(linter: Checkov, helm: Helm, mode: str, tmp_path: Path) -> None:
    objects = helm.render({**STRICT, "mode": mode}, kinds=MODES[mode])
    assert unexcused(linter.findings(objects, tmp_path), RIGHT, ASKED) == []


def test_an_installation_in_some_namespaces_passes(linter: Checkov, helm: Helm, tmp_path: Path) -> None:
    objects = helm.render({"watchNamespaces": ["team-a", "team-b"], "rbac": {"userRoles": "namespaces"}})
    assert unexcused(linter.findings(objects, tmp_path), RIGHT, CHOSEN) == []


def test_weaker_settings_are_found_and_every_excuse_is_needed(linter: Checkov, helm: Helm, tmp_path: Path) -> None:
    objects = helm.render(HOOKS, kinds=KUBEVIRT)
    assert not WEAK.items() & container(objects)["securityContext"].items()
    container(objects)["securityContext"].update(WEAK)
    found = {(each.check, each.kind) for each in linter.findings([*objects, ALMIGHTY], tmp_path)}
    assert found >= RIGHT.keys() | CHOSEN.keys()
    assert {kind for check, kind in found if check in WEAKER} == {"Deployment"}
    assert {check for check, _ in found} >= WEAKER
    assert ("CKV_K8S_49", "ClusterRole") in found
