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
from tests.controlplane.documents import uids, vm_template
from tests.controlplane.namespace import Namespace, PoolNamespace, SetNamespace
from tests.controlplane.waits import eventually

pytestmark = pytest.mark.cluster

POOL = "virtualmachinepool.pool.kubevirt.io/pool"
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


def test_each_verb_of_rollout_works_on_a_pool(pools: PoolNamespace, run: Run) -> None:
    pools.make(2, template=vm_template(memory="64M"))
    assert run(pools, "rollout status vmpool/pool").endswith('vmpool "pool" successfully rolled out\n')
    pools.change_template(vm_template(memory="65M"))
    lines = run(pools, "rollout status vmpool/pool").splitlines()
    assert lines[-1] == 'vmpool "pool" successfully rolled out'
    history = json.loads(run(pools, "rollout history vmpool/pool -o json"))
    assert [(row["isCurrent"], row["vms"]) for row in history] == [(False, 0), (True, 2)]
    assert "requests.memory" in run(pools, "rollout history vmpool pool")

    assert run(pools, "rollout undo vmpool/pool --dry-run=server") == f"{POOL} rolled back (server dry run)\n"
    assert memory_of(pools.read()["spec"]["virtualMachineTemplate"]["spec"]) == "65M"
    assert run(pools, "rollout undo vmpool/pool") == f"{POOL} rolled back\n"
    run(pools, "rollout status vmpool/pool")
    assert {memory_of(vm["spec"]) for vm in pools.vms().values()} == {"64M"}

    before = set(uids(pools.vmis()).values())
    assert run(pools, "rollout restart vmpool/pool") == f"{POOL} restarted\n"
    run(pools, "rollout status vmpool/pool")
    assert before.isdisjoint(uids(pools.vmis()).values())

    assert run(pools, "rollout pause vmpool/pool") == f"{POOL} paused\n"
    assert pools.read()["spec"]["paused"] is True
    assert run(pools, "rollout resume vmpool/pool --field-manager=ops") == f"{POOL} resumed\n"
    managers = {each["manager"] for each in pools.read()["metadata"]["managedFields"]}
    assert {"kubectl-vmherd", "ops"} & managers


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


def test_single_vms_of_a_pool_are_protected_removed_and_detached(pools: PoolNamespace, run: Run) -> None:
    pools.make(3)
    run(pools, "rollout status vmpool/pool")
    assert run(pools, "protect pool-2") == "virtualmachine.kubevirt.io/pool-2 protected\n"
    lines = run(pools, "remove vm/pool-1 --scale-in").splitlines()
    assert lines == ["virtualmachine.kubevirt.io/pool-1 marked for removal", f"{POOL} scaled to 2"]
    pools.wait_for_ordinals(0, 2)
    run(pools, "detach pool-0")
    pools.wait_for_ordinals(0, 1, 2)
    assert "ownerReferences" not in pools.vms.get("pool-0")["metadata"]
    run(pools, "scale vmpool/pool --replicas=1")
    pools.wait_for_ordinals(0, 2)
    assert run(pools, "unprotect pool-2") == "virtualmachine.kubevirt.io/pool-2 unprotected\n"


def test_vmis_of_a_set_are_detached_adopted_and_removed(pools: PoolNamespace, run: Run) -> None:
    pools.sets.make(2)
    run(pools, "rollout status vmirs/herd")
    first, second = sorted(pools.alive())
    run(pools, f"detach vmi/{first}")
    eventually(lambda: len(pools.alive()) == 3, what="the set replaces the detached VMI")
    assert first in pools.alive()
    run(pools, f"protect {second}")
    run(pools, "scale vmirs/herd --replicas=3")
    eventually(lambda: len(pools.alive()) == 4, what="the set has one VMI more")
    # A paused set creates no VMI that is one too many after the adoption.
    run(pools, "rollout pause vmirs/herd")
    run(pools, "scale vmirs/herd --replicas=4")
    assert "adopted by vmirs/herd" in run(pools, f"adopt vmi/{first} --to vmirs/herd")
    eventually(lambda: "ownerReferences" in pools.alive()[first]["metadata"], what="the VMI is adopted")
    run(pools, "rollout resume vmirs/herd")
    pools.settle()
    assert "scaled to 3" in run(pools, f"remove {first} --scale-in")
    eventually(lambda: first not in pools.alive(), what="the marked VMI leaves")
    assert second in pools.alive()


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


def test_kubectl_completes_the_commands_and_names_of_the_plugin(pools: PoolNamespace, tmp_path: Path) -> None:
    pools.make(1, name="web")
    kubectl = Shell(tmp_path, pools.plane.kubeconfig, pools.namespace)
    program = kubectl.programs / "kubectl_complete-vmherd"
    text = (kubectl.programs / "kubectl-vmherd").read_text()
    program.write_text(text.replace("from plugin.__main__ import main", "from plugin.completion import main"))
    program.chmod(0o755)

    def complete(*words: str) -> list[str]:
        return kubectl("__complete", "vmherd", *words).stdout.splitlines()

    assert complete("rollout", "resu") == ["resume\tend a pause", ":4"]
    assert complete("tree", "vmp") == ["vmpool/\tpools of VMs", ":6"]
    eventually(lambda: "vmpool/web\tRunning 1/1 ready" in complete("tree", "vmpool/"), what="the name with its state")
    # The names are left out if the server needs more than two seconds.
    eventually(lambda: complete("protect", "vm/we")[0].startswith("vm/web-0"), what="the name of the VM")
    eventually(lambda: "default\tActive" in complete("list", "-n", "def"), what="the name of the namespace")


def memory_of(spec: dict[str, Any]) -> Any:
    return spec["template"]["spec"]["domain"]["resources"]["requests"]["memory"]


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
