"""The verbs of `kubectl vmherd` for both kinds on the real control plane."""

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from plugin.cli import main
from sandbox.kubectl import kubectl_path
from tests.controlplane.documents import uids
from tests.controlplane.namespace import Namespace, PoolNamespace, SetNamespace
from tests.controlplane.waits import eventually

pytestmark = pytest.mark.cluster


SET = "virtualmachineinstancereplicaset.kubevirt.io/herd"
ROLLING = {"vmherd.dev/rolling-update": "maxUnavailable=100%"}

Run = Callable[..., str]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(of: Namespace, line: str, *, code: int = 0) -> str:
        found = main([*line.split(), f"--kubeconfig={of.plane.kubeconfig}", "-n", of.namespace])
        out, err = capsys.readouterr()
        assert found == code, err
        return out if code == 0 else err

    return run


def old_are_gone(pools: PoolNamespace) -> None:
    """Wait until no VMI is terminating. `tree` and `rollout history` show such VMIs, too."""
    eventually(lambda: pools.vmis().keys() == pools.alive().keys(), what="the old VMIs are gone")


def test_each_verb_of_rollout_works_on_a_set(pools: PoolNamespace, run: Run) -> None:
    pools.sets.make(2, annotations=ROLLING)
    assert run(pools, "rollout status vmirs/herd").endswith('vmirs "herd" successfully rolled out\n')
    before = set(uids(pools.alive()).values())
    assert len(before) == 2
    assert run(pools, "rollout restart vmirs/herd") == f"{SET} restarted\n"
    run(pools, "rollout status vmirs/herd")
    assert before.isdisjoint(uids(pools.alive()).values())
    old_are_gone(pools)
    tree = run(pools, "tree vmirs/herd").splitlines()
    assert tree[1].split()[0] == "vmirs/herd"
    assert {line.split()[1].removeprefix("vmi/") for line in tree[2:]} == set(pools.alive())
    assert run(pools, "why vmirs/herd").startswith("vmirs/herd wants 2, has 2, 2 ready, 2 on revision ")
    assert run(pools, "rollout pause vmirs/herd") == f"{SET} paused\n"
    assert "  held     paused" in run(pools, "why vmirs/herd")
    assert run(pools, "rollout resume vmirs/herd") == f"{SET} resumed\n"
    history = json.loads(run(pools, "rollout history vmirs/herd -o json"))
    assert [(row["isCurrent"], row["vms"]) for row in history] == [(False, 0), (True, 2)]
    assert "metadata.annotations" in run(pools, "rollout history vmirs/herd")
    restarted = set(uids(pools.alive()).values())
    assert run(pools, "rollout undo vmirs/herd") == f"{SET} rolled back\n"
    run(pools, "rollout status vmirs/herd")
    assert restarted.isdisjoint(uids(pools.alive()).values())
    old_are_gone(pools)
    history = json.loads(run(pools, "rollout history vmirs/herd -o json"))
    assert [(row["isCurrent"], row["vms"]) for row in history] == [(False, 0), (True, 2)]
    pools.sets.change({"metadata": {"annotations": {next(iter(ROLLING)): None}}})
    staying = set(uids(pools.alive()).values())
    run(pools, "rollout undo vmirs/herd")
    eventually(lambda: pools.sets.status().get("updatedReplicas", 0) == 0, what="all VMIs are outdated")
    assert set(uids(pools.alive()).values()) == staying


def test_the_flags_of_kubectl_choose_cluster_user_and_identity(
    pools: PoolNamespace, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pools.make(1)
    status = "rollout status vmpool/pool --watch=false"
    forbidden = run(pools, f"{status} --as=jane --as-group=a --as-group=b", code=1)
    assert forbidden.startswith("Error from server (Forbidden): ")
    assert 'User "jane" cannot get resource' in forbidden
    admins = "--as=jane --as-group=x --as-group=system:masters"
    assert "vmpool" in run(pools, f"{status} {admins}")
    config = yaml.safe_load(Path(pools.plane.kubeconfig).read_text())
    [cluster], [user] = ([each["name"] for each in config[part]] for part in ("clusters", "users"))
    config |= {"contexts": [], "current-context": ""}
    bare = tmp_path / "kubeconfig"
    bare.write_text(yaml.safe_dump(config))
    line = f"{status} --kubeconfig={bare} --cluster={cluster} --user={user} -n {pools.namespace} --request-timeout=9s"
    assert main(line.split()) == 0
    assert main([*line.split(), "--token=wrong"]) == 1
    assert main([*line.split(), "--user=nobody"]) == 1
    assert main([*line.split(), "--server=https://127.0.0.1:1"]) == 1


ROOT = Path(__file__).resolve().parents[2]
GUIDE = ("--name", "vmiservice", "--port", "27017", "--target-port", "22")
EPHEMERAL = {"special": "vmi-ephemeral"}


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
    labels = {**EPHEMERAL, "version": "1"}
    sets.make(
        2, name="vmi-ephemeral", selector={"matchLabels": EPHEMERAL}, template_metadata={"labels": labels}, **fields
    )
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
    assert (service["spec"]["type"], service["spec"]["selector"]) == ("ClusterIP", EPHEMERAL)
    assert matching(sets, service["spec"]["selector"]) == set(sets.alive()) - {"stranger"}
    sets.change({"spec": {"template": {"metadata": {"labels": {"version": "2"}}}}}, name="vmi-ephemeral")
    sets.kubectl("scale", "vmirs", "vmi-ephemeral", "--replicas=3")
    eventually(lambda: len(matching(sets, EPHEMERAL)) == 3, what="the VMIs of a newer template are selected, too")
