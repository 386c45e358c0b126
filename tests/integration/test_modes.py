"""The modes in a cluster with KubeVirt: how `auto` decides, when a start is refused, and `vmherd takeover`."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.preflight.permissions import check_permissions, permissions_needed
from sandbox.admin import Admin, Rejected
from sandbox.controlplane import ControlPlane
from tests.cluster import new_namespace
from tests.controlplane.namespace import SetNamespace
from tests.controlplane.programs import ControllerProcess, controller_process
from tests.controlplane.waits import WORK_S, eventually
from tests.integration.idle_plane import LEASE
from tests.integration.kubevirt_installation import OTHER, RESTING, KubeVirtInstallation, vmherd
from tests.release import Pod, pod_that_may, settings

pytestmark = pytest.mark.cluster


@pytest.fixture
def kubevirt(kubevirt_plane: ControlPlane) -> Iterator[KubeVirtInstallation]:
    """An installed KubeVirt. Its controllers for sets and pools are active."""
    installation = KubeVirtInstallation(kubevirt_plane)
    installation.install()
    yield installation
    installation.uninstall()
    with contextlib.suppress(Rejected):  # not every test runs a controller that acquires the lease
        Admin(kubevirt_plane.kubeconfig).send("DELETE", LEASE)


@pytest.fixture
def namespace(kubevirt_plane: ControlPlane) -> Iterator[str]:
    with new_namespace(kubevirt_plane) as name:
        yield name


def knowing(plane: ControlPlane, *flags: str) -> Pod:
    """A Pod that may read KubeVirt's objects. The chart allows this only for a takeover."""
    looks = settings(plane, "--mode", "takeover")
    return pod_that_may(plane, {*permissions_needed(settings(plane, *flags)), *check_permissions(looks)})


def refusal(who: ControlPlane | Pod, directory: Path, *flags: str) -> str:
    """The only output line of the controller, which refuses to start."""
    with controller_process(who, directory, *flags, wait=False) as program:
        assert program.process.wait(40) == 1
        [line] = [line for line in program.log.read_text().splitlines() if line.startswith("vmherd: ")]
    return line


def mode_of(program: ControllerProcess) -> str:
    [line] = program.lines(msg="mode")
    return str(line["mode"])


def test_auto_is_alongside_if_kubevirt_is_installed_and_leaves_its_sets_alone(
    kubevirt: KubeVirtInstallation, namespace: str, tmp_path: Path
) -> None:
    theirs = SetNamespace(kubevirt.plane, namespace)
    ours = SetNamespace(kubevirt.plane, namespace, group="vmherd.dev")
    may = knowing(kubevirt.plane, "--mode", "alongside")
    with controller_process(may, tmp_path, "--mode", "auto") as program:
        ours.controller = program
        theirs.make(2, name="theirs")
        ours.make(1, name="ours")
        eventually(lambda: len(ours.alive()) == 1, what="our set has its VMI")
        ours.settle()
        assert len(theirs.alive()) == 1
        assert not theirs.status("theirs"), "KubeVirt's set stays as it is"
        assert mode_of(program) == "alongside"
        assert program.stop() == 0


@pytest.mark.parametrize(
    "flags", [("--mode", "standalone"), ("--mode", "takeover"), ("--pool-group", "pool.vmherd.dev")]
)
def test_an_active_virt_controller_refuses_a_start(
    flags: tuple[str, ...], kubevirt: KubeVirtInstallation, tmp_path: Path
) -> None:
    line = refusal(knowing(kubevirt.plane, *flags), tmp_path, *flags)
    assert "Deployment kubevirt/virt-controller has no --rs-controller-threads=0" in line
    assert ("--pool-controller-threads=0" in line) == ("--pool-group" not in flags)
    assert "vmherd takeover" in line


def looked_at(plane: ControlPlane, since: int) -> bool:
    """Whether the controller has read the Deployment virt-controller twice since this position in the audit log."""
    reads = [each for each in plane.audit_records(since) if (each.verb, each.name) == ("get", "virt-controller")]
    return sum(each.user_agent.startswith("vmherd/") for each in reads) >= 2


def test_a_takeover_waits_for_the_rollout_of_virt_controller(kubevirt: KubeVirtInstallation, tmp_path: Path) -> None:
    kubevirt.start(*RESTING)
    kubevirt.restart_without_end()
    since = kubevirt.plane.audit_position()
    with controller_process(kubevirt.plane, tmp_path, "--mode", "takeover", wait=False) as program:
        eventually(lambda: looked_at(kubevirt.plane, since), within_s=WORK_S, what="looks at the rollout")
        assert not program.working
        kubevirt.start(*RESTING)
        eventually(lambda: program.working, what="the rollout is over")


def test_a_takeover_needs_permissions_to_read_kubevirts_objects(kubevirt: KubeVirtInstallation, tmp_path: Path) -> None:
    plane = kubevirt.plane
    kubevirt.start(*RESTING)
    argv = ["--mode", "takeover", "--kubevirt-namespace", "kubevirt"]
    needed = permissions_needed(settings(plane, *argv))
    blind = pod_that_may(plane, (permission for permission in needed if permission.namespace != "kubevirt"))
    with controller_process(blind, tmp_path, *argv, wait=False) as program:
        assert program.process.wait(40) == 1
        told = [line for line in program.log.read_text().splitlines() if line.startswith("vmherd: missing permission")]
    assert [line.partition(";")[0] for line in told] == [
        "vmherd: missing permission: list kubevirts.kubevirt.io in namespace kubevirt",
        'vmherd: missing permission: get deployments.apps "virt-controller" in namespace kubevirt',
    ]
    with controller_process(plane, tmp_path, *argv) as program:
        assert program.stop() == 0


def test_a_recent_status_write_reveals_virt_controller_without_a_deployment(
    kubevirt: KubeVirtInstallation, namespace: str, tmp_path: Path
) -> None:
    sets = SetNamespace(kubevirt.plane, namespace)
    sets.make(0)
    kubevirt.kubectl("delete", "deployment", "virt-controller")
    patch = json.dumps({"status": {"replicas": 0, "readyReplicas": 0}})
    sets.kubectl(
        *("patch", "vmirs", "herd", "--subresource=status", "--type=merge", f"--patch={patch}"),
        "--field-manager=virt-controller",
    )
    looks = knowing(kubevirt.plane)
    line = refusal(looks, tmp_path, "--mode", "standalone")
    assert f"virt-controller wrote the status of virtualmachineinstancereplicasets.kubevirt.io {namespace}/herd" in line
    sets.kubectl("delete", "vmirs", "herd")
    with controller_process(looks, tmp_path, "--mode", "standalone") as program:
        assert program.lines(msg="KubeVirt has no virt-controller yet")
        assert program.stop() == 0


def test_takeover_patches_once_and_keeps_the_patches_of_others(kubevirt: KubeVirtInstallation) -> None:
    kubevirt.install(patches=(OTHER,))
    dry = vmherd(kubevirt.plane.kubeconfig, "takeover", "--dry-run")
    assert (dry.returncode, dry.stderr, kubevirt.patches()) == (0, "", [OTHER])
    done = vmherd(kubevirt.plane.kubeconfig, "takeover")
    assert (done.returncode, done.stderr) == (0, "")
    assert "rollout status deployment virt-controller" in done.stdout
    first, ours = kubevirt.patches()
    assert first == OTHER
    assert [step["value"] for step in json.loads(ours["patch"])] == RESTING
    again = vmherd(kubevirt.plane.kubeconfig, "takeover")
    assert (again.returncode, kubevirt.patches()) == (0, [OTHER, ours])
    assert "already" in again.stdout
    assert vmherd(kubevirt.plane.kubeconfig, "takeover", "--undo", "--dry-run").returncode == 0
    assert len(kubevirt.patches()) == 2
    undone = vmherd(kubevirt.plane.kubeconfig, "takeover", "--undo")
    assert (undone.returncode, undone.stderr, kubevirt.patches()) == (0, "", [OTHER])
    assert "nothing to undo" in vmherd(kubevirt.plane.kubeconfig, "takeover", "--undo").stdout


def test_the_output_of_a_dry_run_is_a_working_command(kubevirt: KubeVirtInstallation) -> None:
    line = vmherd(kubevirt.plane.kubeconfig, "takeover", "--dry-run").stdout.splitlines()[1]
    command, patch = line.split(" --patch ")
    assert command == "kubectl --namespace kubevirt patch kubevirts.kubevirt.io kubevirt --type json"
    kubevirt.kubectl(*command.split()[3:], f"--patch={patch.strip(chr(39))}")
    assert "already" in vmherd(kubevirt.plane.kubeconfig, "takeover").stdout


def test_without_a_kubevirt_there_is_nothing_to_take_over(kubevirt: KubeVirtInstallation, tmp_path: Path) -> None:
    kubevirt.kubectl("delete", "kubevirts", "kubevirt")
    done = vmherd(kubevirt.plane.kubeconfig, "takeover")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == ("vmherd: there is no KubeVirt in this cluster: use vmherd run --mode standalone\n")
    nobody = kubevirt.plane.write_kubeconfig(tmp_path / "kubeconfig", "nobody")
    kubevirt.install()
    refused = vmherd(nobody, "takeover")
    assert refused.returncode == 1
    assert refused.stderr.startswith("vmherd: kubevirts.kubevirt.io is forbidden")
    assert refused.stderr.count("\n") == 1


def test_a_takeover_from_beginning_to_end(kubevirt: KubeVirtInstallation, namespace: str, tmp_path: Path) -> None:
    """Take over, reconcile KubeVirt's sets, refuse `--undo` while the controller runs, and undo the takeover."""
    plane = kubevirt.plane
    assert vmherd(plane.kubeconfig, "takeover").returncode == 0
    kubevirt.operate()
    sets = SetNamespace(plane, namespace)
    with controller_process(plane, tmp_path, "--mode", "takeover") as program:
        sets.make(2)
        sets.wait_for(2)
        refused = vmherd(plane.kubeconfig, "takeover", "--undo")
        assert refused.returncode == 1
        assert "holds the lease vmherd-system/vmherd: stop it first" in refused.stderr
        assert program.stop() == 0
    assert vmherd(plane.kubeconfig, "takeover", "--undo").returncode == 0
    kubevirt.operate()
    assert kubevirt.args()[-1] == "2"
    assert "virt-controller has no" in refusal(plane, tmp_path, "--mode", "takeover")
