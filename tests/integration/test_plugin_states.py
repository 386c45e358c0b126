"""`tree` and `why` in each state of both kinds on the real control plane: an update, a healing, a retry, a quota."""

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from plugin.cli import main
from tests.controlplane.documents import BEHAVIOR, READY_AFTER, finalizers_of, uids, vm_template
from tests.controlplane.namespace import Namespace, PoolNamespace, SetNamespace
from tests.controlplane.refusals import allow, grant
from tests.controlplane.waits import eventually
from tests.integration.renewal import break_vm

pytestmark = pytest.mark.cluster

HEALING = {"startUpFailureThreshold": 99, "minFailingToStartDuration": "15s"}
KINDS = {"vmpool/pool": "virtualmachines", "vmirs/herd": "virtualmachineinstances"}
BROKEN = {BEHAVIOR: "image-error"}

Run = Callable[..., str]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(of: Namespace, line: str, *, code: int = 0, kubeconfig: Path | None = None) -> str:
        """The output of a successful command, or the errors of a failed command."""
        found = main([*line.split(), f"--kubeconfig={kubeconfig or of.plane.kubeconfig}", "-n", of.namespace])
        out, err = capsys.readouterr()
        assert found == code, err
        return out if code == 0 else err

    return run


def topics(answer: str) -> list[str]:
    """The topics of `why`, without `leader`: the controllers of tests need no lease."""
    return [line.split()[0] for line in answer.splitlines()[1:] if line.split()[0] != "leader"]


@pytest.mark.parametrize("subject", KINDS)
def test_a_blocked_scale_out_is_explained_until_the_quota_is_raised(
    pools: PoolNamespace, run: Run, subject: str
) -> None:
    pools.make(2) if subject == "vmpool/pool" else pools.sets.make(2)
    run(pools, f"rollout status {subject}")
    allow(pools, 2, of=KINDS[subject])
    run(pools, f"scale {subject} --replicas=3")
    why = eventually(lambda: (found := run(pools, f"why {subject}")) and "exceeded quota: few" in found and found)
    assert why.startswith(f"{subject} wants 3, has 2, 2 ready, 2 on revision ")
    assert topics(why) == ["cause", "next", "next", "try"]
    assert "  next     create " in why
    assert re.search(r"  next     Stalled in \d+m\w*; the failed write is repeated", why)
    assert f"  try      kubectl describe resourcequota -n {pools.namespace}\n" in why
    root = run(pools, f"tree {subject}").splitlines()[1]
    assert root.split()[:4] == [subject, root.split()[1], "Degraded", "2/3"]
    assert "exceeded quota: few" in root
    assert run(pools, f"list {subject}").splitlines()[1].split()[:3] == [subject, "Degraded", "2/3"]
    allow(pools, 10, of=KINDS[subject])
    assert run(pools, f"rollout status {subject} --timeout=60s").endswith("successfully rolled out\n")
    eventually(lambda: topics(run(pools, f"why {subject}")) == [], what="nothing is left to say")


def test_a_healing_is_foretold_and_happens(pools: PoolNamespace, run: Run) -> None:
    template = vm_template(vmi_annotations={BEHAVIOR: "normal", READY_AFTER: "100ms"})
    pools.make(2, template=template, autohealing=HEALING)
    pools.wait_ready(2)
    before = uids(pools.vms())
    break_vm(pools, "pool-1", "image-error")
    foretold = r"  next     healing of pool-1 at 99 failed starts \(now \d+\), or at the latest in \d+s"
    why = eventually(lambda: (found := run(pools, "why vmpool/pool")) and re.search(foretold, found) and found)
    assert re.search(r"  cause    pool-1: \w*ImagePull\w* since \d+s \(", why)
    row = run(pools, "tree vmpool/pool").splitlines()[3]
    assert row.split()[:2] == ["`-", "vm/pool-1"]
    assert "ImagePull" in row
    eventually(lambda: uids(pools.vms()).get("pool-1") not in (None, before["pool-1"]), what="pool-1 is healed")
    pools.wait_ready(2)
    assert uids(pools.vms())["pool-0"] == before["pool-0"]
    eventually(lambda: topics(run(pools, "why vmpool/pool")) == [], what="nothing is left to say")


@pytest.mark.parametrize("subject", KINDS)
def test_an_update_that_waits_says_when_it_stalls(pools: PoolNamespace, run: Run, subject: str) -> None:
    if subject == "vmpool/pool":
        pools.make(2, maxUnavailable="50%")
        run(pools, f"rollout status {subject}")
        pools.change_template(vm_template(vmi_annotations=BROKEN, memory="65M"))
    else:
        pools.sets.make(2, annotations={"vmherd.dev/rolling-update": "maxUnavailable=50%"})
        run(pools, f"rollout status {subject}")
        template = {"metadata": {"annotations": BROKEN}, "spec": {"terminationGracePeriodSeconds": 1}}
        pools.sets.change({"spec": {"template": template}})
    stall = r"RolloutStalled in (9m|10m)"
    why = eventually(
        lambda: (found := run(pools, f"why {subject}")) and re.search(stall, found) and "  cause " in found and found
    )
    assert "1 of 1 allowed are unavailable (maxUnavailable 50%), by " in why
    assert f"  try      kubectl vmherd rollout undo {subject} -n {pools.namespace}\n" in why
    tree = run(pools, f"tree {subject}").splitlines()
    assert " ".join(tree[1].split()[2:5]) == "Updating 1/2 1/2"
    assert sum("waits for " in line for line in tree) == 1
    line = run(pools, f"rollout status {subject} --watch=false")
    assert "1 out of 2 new " in line
    run(pools, f"rollout status {subject} --timeout=2s", code=1)
    run(pools, f"rollout undo {subject}")
    assert run(pools, f"rollout status {subject} --timeout=60s").endswith("successfully rolled out\n")


def fail(sets: SetNamespace, name: str) -> None:
    moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    times = [{"phase": "Failed", "phaseTransitionTimestamp": moment}]
    sets.vmis.change(name, {"status": {"phase": "Failed", "phaseTransitionTimestamps": times}})


def test_the_retry_of_a_failing_vmi_is_foretold_and_happens(sets: SetNamespace, run: Run) -> None:
    sets.make(1)
    [first] = sets.wait_for(1)
    fail(sets, first)
    second = eventually(lambda: next((name for name in sets.alive() if name != first), None), what="the first retry")
    fail(sets, second)
    failed = set(uids(sets.vmis()).values())
    retry = rf"  next     in \d+s: create virtualmachineinstances \S+: replaces {second}; failures in a row: 2\n"
    why = eventually(lambda: (found := run(sets, "why vmirs/herd")) and re.search(retry, found) and found)
    assert f"  cause    ReplicaBackOff: virtual machine {second} failed soon after it started" in why
    assert run(sets, "tree vmirs/herd").splitlines()[1].split()[2] == "Degraded"
    # The names of deleted VMIs are free again.
    eventually(lambda: set(uids(sets.alive()).values()) - failed, within_s=30, what="the second retry")


def test_the_commands_of_operators_have_the_flags_of_kubectl(pools: PoolNamespace, run: Run) -> None:
    pools.make(1)
    run(pools, "rollout status vmpool/pool")
    line = "expose vmpool/pool --name=web --port=80"
    assert run(pools, f"{line} --dry-run=server") == "service/web exposed (server dry run)\n"
    assert pools.kubectl.json("get", "services")["items"] == []
    assert 'User "jane" cannot get resource' in run(pools, f"{line} --as=jane", code=1)
    service = json.loads(run(pools, f"{line} --field-manager=ops --as=jane --as-group=system:masters -o json"))
    assert service["metadata"]["managedFields"][0]["manager"] == "ops"
    assert "AlreadyExists" in run(pools, line, code=1)
    assert "there is no KubeVirt in namespace" in run(pools, "takeover --dry-run=server", code=1)
    assert 'User "jane"' in run(pools, "cleanup --force --as=jane", code=1)
    before = finalizers_of(pools.read())
    assert before
    assert "would: virtualmachinepools.pool.kubevirt.io" in run(pools, "cleanup --dry-run=client")
    assert "cleaned up" in run(pools, "cleanup --force --dry-run=server")
    assert finalizers_of(pools.read()) == before


def test_a_user_with_few_permissions_sees_what_the_role_allows(pools: PoolNamespace, run: Run, tmp_path: Path) -> None:
    pools.make(1)
    run(pools, "rollout status vmpool/pool")
    resources = "virtualmachinepools.pool.kubevirt.io,virtualmachines.kubevirt.io"
    grant(pools, "looker", "get,list", resources)
    looker = pools.plane.write_kubeconfig(tmp_path / "looker", "looker")
    seen = run(pools, "list", kubeconfig=looker)
    assert [row.split()[0] for row in seen.splitlines()] == ["NAME", "vmpool/pool"]
    rows = run(pools, "tree vmpool/pool", kubeconfig=looker).splitlines()
    assert [row.split()[:2] for row in rows[2:]] == [["`-", "vm/pool-0"]]
    assert run(pools, "why vmpool/pool", kubeconfig=looker).startswith("vmpool/pool wants 1, has 1, 1 ready")
    assert "there is no plan: virtualmachineinstances" in run(pools, "plan vmpool/pool", code=1, kubeconfig=looker)
    assert "cannot patch resource" in run(pools, "protect vm/pool-0", code=1, kubeconfig=looker)
    resources = "virtualmachinepools.pool.kubevirt.io,controllerrevisions.apps"
    grant(pools, "reader", "get,list", resources)
    reader = pools.plane.write_kubeconfig(tmp_path / "reader", "reader")
    lines = run(pools, "rollout history vmpool/pool", kubeconfig=reader).splitlines()
    assert lines[2].split()[:3] == ["1", "*", "<unknown>"]
