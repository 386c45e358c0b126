"""The Jobs of the chart's hooks on the real API server.

No Pod runs in the cluster. So the test runs the Job's command with a token of the Job's account, and then writes the
status of a finished Job.
"""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.charts.releases import Site
from tests.charts.test_live import refusals, released
from tests.controlplane.documents import FINALIZER, finalizers_of
from tests.controlplane.namespace import PoolNamespace
from tests.controlplane.programs import simulator
from tests.controlplane.waits import eventually
from tests.helm import MODE
from tests.integration.kubevirt_installation import vmherd

pytestmark = [pytest.mark.cluster, pytest.mark.e2e, pytest.mark.parametrize("major", [3, 4], indirect=True)]

TIME = "2026-01-01T00:00:00Z"
CONDITIONS = [
    {"type": each, "status": "True", "lastTransitionTime": TIME} for each in ("SuccessCriteriaMet", "Complete")
]
FINISHED = {"startTime": TIME, "completionTime": TIME, "succeeded": 1, "conditions": CONDITIONS}


@contextmanager
def helm_runs(site: Site, *arguments: str, values: dict[str, Any] | None = None) -> Iterator[subprocess.Popen[str]]:
    """Run Helm while the block runs. At the end Helm must have succeeded."""
    command = [str(site.helm._program), *arguments, "--namespace", site.namespace, "--timeout=90s"]
    with subprocess.Popen(
        [*command, "--values=-"] if values is not None else command,
        env=site.helm._environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as running:
        assert running.stdin is not None
        running.stdin.write(json.dumps(values or {}))
        running.stdin.close()
        yield running
        assert running.stdout is not None
        said = running.stdout.read()
        assert running.wait(timeout=100) == 0, said


def carry_out(site: Site, job: str, directory: Path) -> str:
    """Wait for the Job, run its command as its account, and finish the Job. Return the output of the command."""
    eventually(lambda: site.kubectl("get", "job", job, check=False).returncode == 0, what=job, within_s=60)
    spec = site.kubectl.json("get", "job", job)["spec"]["template"]["spec"]
    account = spec["serviceAccountName"]
    since = site.plane.audit_position()
    done = vmherd(site.kubeconfig_of(account, directory), *spec["containers"][0]["args"])
    assert (done.returncode, done.stderr) == (0, "")
    assert refusals(site, since, account) == set()
    site.kubectl("patch", "job", job, "--subresource=status", "--type=merge", "-p", json.dumps({"status": FINISHED}))
    return done.stdout


def left_of_hooks(site: Site) -> list[str]:
    kinds = "jobs,serviceaccounts,roles,rolebindings,clusterroles,clusterrolebindings"
    found = site.kubectl("get", kinds, "-o", "name").stdout.split()
    return [name for name in found if "/vmherd-kv-" in name or "/vmherd-cleanup" in name]


@pytest.mark.parametrize("watched", [False, True], ids=["everywhere", "watchNamespaces"])
def test_an_uninstallation_with_the_cleanup_job_leaves_no_finalizers(
    site: Site, tmp_path: Path, *, watched: bool
) -> None:
    values = {**MODE, "hooks": {"cleanup": {"enabled": True}}}
    values |= {"watchNamespaces": [site.namespace]} if watched else {}
    assert "After `helm uninstall`, a Job" in site.install(**values)
    pools = PoolNamespace(site.plane, site.namespace)
    with simulator(site.plane), released(site, tmp_path) as program:
        pools.make(1)
        pools.wait_for_ordinals(0)
        assert program.stop() == 0
    with helm_runs(site, "uninstall", "vmherd"):
        said = carry_out(site, "vmherd-cleanup", tmp_path)
    assert "cleaned up: no finalizer" in said
    assert FINALIZER not in finalizers_of(pools.read())
    assert FINALIZER not in finalizers_of(pools.vms()["pool-0"])
    eventually(lambda: left_of_hooks(site) == [], what="the objects of the hooks are gone")
