"""The rendered chart passes checkov, a linter for security and reliability.

checkov has an environment of its own. Its first installation takes one to three minutes and 300 MB.
"""

import json
import os
import subprocess
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec import Struct

from tests.charts.test_pods import HOOKS
from tests.charts.test_releases import EVERYTHING
from tests.environments import python_or_skip
from tests.helm import Helm, container
from tools.chart.helm import MAJORS

pytestmark = pytest.mark.timeout(400)

KUBEVIRT = ("kubevirt.io/v1/KubeVirt",)
STRICT = {
    **EVERYTHING,
    "image": {"digest": f"sha256:{'0' * 64}", "pullPolicy": "Always"},
    "podSecurityContext": {"runAsUser": 65532},
}

RIGHT: dict[tuple[str, str], str] = {
    ("CKV_K8S_11", "Deployment"): "A CPU limit would throttle a leader until it misses its lease.",
    **{
        ("CKV_K8S_11", kind): "It does little work and ends: there is no CPU to keep it from."
        for kind in ("Job", "Pod")
    },
    ("CKV_K8S_38", "Deployment"): "Its work is to talk to the API server, for which it needs the token.",
    ("CKV_K8S_8", "Pod"): "Nothing has to restart the test's Pod: it ends by itself, and has a deadline.",
    ("CKV_K8S_38", "Job"): "Its work is to talk to the API server, for which it needs the token.",
    ("CKV_K8S_9", "Pod"): "The test sends its Pod no requests that it could be ready for.",
}
"""Checks that fail with every set of values. Each entry says why the failure is acceptable."""

KINDS = ("Deployment", "Job", "Pod")
CHOSEN: dict[tuple[str, str], str] = {
    **{("CKV_K8S_43", kind): "The builder of the image sets its digest: `image.digest`." for kind in KINDS},
    **{("CKV_K8S_15", kind): "A version's tag stays, and a registry that is away stops no failover." for kind in KINDS},
    **{("CKV_K8S_40", kind): "The image has user 65532; some clusters give out users by themselves." for kind in KINDS},
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


RELEASES: dict[str, tuple[Mapping[str, Any], Mapping[tuple[str, str], str]]] = {
    "standalone": ({"mode": "standalone"}, CHOSEN),
    "alongside": ({"mode": "alongside"}, CHOSEN),
    "hooks": (HOOKS, CHOSEN),
    "namespaces": ({"watchNamespaces": ["team-a", "team-b"], "rbac": {"userRoles": "namespaces"}}, CHOSEN),
    "strict-standalone": ({**STRICT, "mode": "standalone"}, ASKED),
    "strict-alongside": ({**STRICT, "mode": "alongside"}, ASKED),
    "strict-hooks": ({**STRICT, **HOOKS}, ASKED),
}
"""The values of each release, and the excuses beside RIGHT. Without the excuses in CHOSEN, the checks pass too."""


class Finding(Struct, frozen=True):
    """A failed check, and the object that failed it."""

    check: str
    kind: str
    says: str


@pytest.fixture(scope="session")
def linted(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, list[Finding]]:
    """The findings in each release, and in a release with weaker settings. One run of checkov checks all, because its
    import takes most of the time.
    """
    python, directory = python_or_skip("checkov"), tmp_path_factory.mktemp("checkov")

    def rendered(name: str, values: Mapping[str, Any]) -> list[dict[str, Any]]:
        kinds = () if values.get("mode", "standalone") == "standalone" else KUBEVIRT
        # The labels of a release have its name, so no network policy of another one covers its Pods.
        return Helm(MAJORS[-1], tmp_path_factory.mktemp("helm")).render({**values, "nameOverride": name}, kinds=kinds)

    releases = {name: rendered(name, values) for name, (values, _) in RELEASES.items()}
    weak = rendered("weak", HOOKS)
    assert not WEAK.items() & container(weak)["securityContext"].items()
    container(weak)["securityContext"].update(WEAK)
    for name, objects in {**releases, "weak": [*weak, ALMIGHTY]}.items():
        (directory / f"{name}.yaml").write_text(yaml.safe_dump_all(objects))
    which = ["--framework", "kubernetes", "--directory", str(directory), "--skip-download"]
    command = [str(python), "-P", "-m", "checkov.main", *which, "--quiet", "--compact", "--output", "json"]
    places = dict.fromkeys(("HOME", "TMPDIR"), str(directory))
    # The check for a newer version needs the internet.
    quiet = {"PATH": os.defpath, "LOG_LEVEL": "ERROR", "CKV_SKIP_PACKAGE_UPDATE_CHECK": "1"}
    done = subprocess.run(command, env=places | quiet, capture_output=True, text=True, timeout=90, check=False)
    assert (done.returncode in (0, 1), done.stderr) == (True, ""), done.stdout[-2000:]
    report = json.loads(done.stdout)
    assert not report["summary"]["parsing_errors"], report
    assert report["summary"]["passed"], "it has looked at something"
    found: defaultdict[str, list[Finding]] = defaultdict(list)
    for failed in report["results"]["failed_checks"]:
        finding = Finding(failed["check_id"], failed["resource"].partition(".")[0], failed["check_name"])
        found[Path(failed["file_path"]).stem].append(finding)
    return found


@pytest.mark.parametrize("name", RELEASES)
def test_a_release_passes_but_for_the_excused_checks(linted: Mapping[str, list[Finding]], name: str) -> None:
    excused = RIGHT.keys() | RELEASES[name][1].keys()
    assert [each for each in linted[name] if (each.check, each.kind) not in excused] == []


def test_weaker_settings_are_found_and_every_excuse_is_needed(linted: Mapping[str, list[Finding]]) -> None:
    found = {(each.check, each.kind) for each in linted["weak"]}
    assert found >= RIGHT.keys() | CHOSEN.keys()
    assert {kind for check, kind in found if check in WEAKER} == {"Deployment"}
    assert {check for check, _ in found} >= WEAKER
    assert ("CKV_K8S_49", "ClusterRole") in found
