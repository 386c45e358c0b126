"""Adds a kind as docs/adding-a-kind.md describes: the controller, the flags, the checks and the metrics support it."""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import Kubectl
from tests.controlplane.documents import SET_LABELS, VMI_SPEC
from tests.controlplane.namespace import SetNamespace
from tests.controlplane.programs import ControllerProcess, controller_process
from tests.controlplane.waits import eventually
from tests.programs import finished

ROOT = Path(__file__).resolve().parent.parent.parent
FLOCK = ROOT / "tests" / "examples" / "flock"
GUIDE = (ROOT / "docs" / "adding-a-kind.md").read_text()
PACKAGE = "tests.examples.flock"
KIND = "VirtualMachineFlock"


def run(*arguments: str) -> str:
    done = finished([sys.executable, *arguments], cwd=ROOT, within_s=100)
    assert done.returncode == 0, done.stderr
    return done.stdout


def asked_of(expression: str) -> Any:
    """Evaluate an expression in a program that includes the kind Flock. Return the result as JSON."""
    imports = f"import json, {PACKAGE}.__main__; from controller.config.settings import Config"
    return json.loads(run("-c", f"{imports}; print(json.dumps({expression}))"))


def test_the_guide_names_every_file_of_the_example():
    files = {path.name for path in FLOCK.iterdir() if path.suffix in (".py", ".yaml") and path.name != "__main__.py"}
    assert files - set(re.findall(r"[a-z_]+\.(?:py|yaml)", GUIDE)) == set()


def test_the_group_of_the_kind_has_a_flag():
    assert "--flock-group GROUP" in run("-m", PACKAGE, "run", "--help")


def test_the_kind_has_its_permissions():
    needed = "__import__('controller.preflight.permissions').preflight.permissions.permissions_needed(Config())"
    verbs = asked_of(f"[[p.subresource, p.verb] for p in {needed} if p.group == 'flock.example.org']")
    own = [["", verb] for verb in ("get", "list", "watch")]
    assert sorted(verbs) == [*own, ["finalizers", "update"], ["status", "patch"]]


def test_the_notes_of_the_chart_name_the_kind():
    chart = asked_of("__import__('tools.chart.kinds').chart.kinds.template()")
    assert '{{- define "vmherd.nouns" -}}\nreplica sets, pools and flocks\n' in chart
    assert '{{- define "vmherd.nounsOfKubeVirt" -}}\nreplica sets and pools\n' in chart
    assert "vmirs,vmpool,vmflock" in chart


def test_the_dashboard_of_the_fleet_queries_the_metrics_of_the_kind():
    module = "__import__('tools.chart.generated').chart.generated"
    board = json.loads(asked_of(f"{module}.fleet_dashboard(open('tools/chart/fleet.json.in').read())"))
    panels = {panel["title"]: panel["targets"] for panel in board["panels"] if "targets" in panel}
    assert [target["legendFormat"] for target in panels["Objects by kind"]] == ["replica sets", "pools", "flocks"]
    assert "count(max by (cluster, namespace, name) (example_vmflock_info{" in panels["Objects by kind"][2]["expr"]
    assert " + sum(max by (cluster, namespace, name) (example_vmflock_paused{" in panels["Paused"][0]["expr"]


def test_the_demo_shows_the_objects_of_the_kind():
    assert "/apis/flock.example.org/v1/namespaces/default/virtualmachineflocks" in asked_of(
        "list(__import__('sandbox.demo.cluster').demo.cluster.OWNERS.values())"
    )


@pytest.fixture
def flocks(idle_namespace: SetNamespace) -> Iterator[Kubectl]:
    """Install the definition of the kind Flock while the test runs."""
    admin = Kubectl(idle_namespace.plane.kubeconfig)
    admin("apply", "-f", str(FLOCK / "crd.yaml"))
    yield Kubectl(idle_namespace.plane.kubeconfig, idle_namespace.namespace)
    admin("delete", "-f", str(FLOCK / "crd.yaml"), "--wait=false")


def flock(name: str, replicas: int) -> dict[str, Any]:
    template = {"metadata": {"labels": SET_LABELS}, "spec": VMI_SPEC}
    spec = {"replicas": replicas, "template": template}
    return {"apiVersion": "flock.example.org/v1", "kind": KIND, "metadata": {"name": name}, "spec": spec}


def status_of(kubectl: Kubectl, name: str) -> dict[str, Any]:
    return dict(kubectl.json("get", "vmflock", name).get("status") or {})


def started(sets: SetNamespace, directory: Path) -> Any:
    own = (f"--watch-namespaces={sets.namespace}", f"--leader-election-namespace={sets.namespace}")
    return controller_process(sets.plane.kubeconfig, directory, "--mode=standalone", *own, program=PACKAGE)


def shown(program: ControllerProcess, name: str) -> set[str]:
    """The lines of a metric on the metrics page, with labels and values."""
    return {line for line in program.metrics().splitlines() if line.startswith(f"{name}{{")}


@pytest.mark.cluster
def test_a_flock_is_reconciled_by_the_same_shell(idle_namespace: SetNamespace, flocks: Kubectl, tmp_path: Path) -> None:
    flocks.apply(flock("geese", 3))
    with started(idle_namespace, tmp_path) as program:
        eventually(lambda: set(idle_namespace.vmis()) == {"geese-0", "geese-1", "geese-2"}, what="three VMIs")
        idle_namespace.play("geese-1")
        eventually(lambda: status_of(flocks, "geese").get("readyReplicas") == 1, what="one is ready")
        assert status_of(flocks, "geese") == {"replicas": 3, "readyReplicas": 1, "observedGeneration": 1}

        idle_namespace.vmis.delete("geese-0")
        eventually(lambda: "geese-0" in idle_namespace.alive(), what="its VMI is back")
        flocks("scale", "vmflock", "geese", "--replicas", "1")
        eventually(lambda: set(idle_namespace.alive()) == {"geese-0"}, what="one VMI is left")
        labels = f'name="geese",namespace="{idle_namespace.namespace}"'
        current = f'vmherd_replicas_current{{kind="{KIND}",{labels}}} 1'
        eventually(lambda: current in shown(program, "vmherd_replicas_current"))
        assert len(shown(program, "example_vmflock_info")) == 1
        counted = 'vmherd_vms_created_total{controller="flock",kind="VirtualMachineInstance",result="success"} 4.0'
        assert counted in shown(program, "vmherd_vms_created_total")

        idle_namespace.make(2)
        eventually(lambda: idle_namespace.status().get("replicas") == 2, what="the other kinds go on")
        hatched = ("get", "events", "--field-selector", "reason=Hatched")
        events = eventually(lambda: flocks.json(*hatched)["items"], what="the Events arrive")
        assert {event["source"]["component"] for event in events} == {"virtualmachineflock-controller"}
