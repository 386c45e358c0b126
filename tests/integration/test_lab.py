"""Runs every command of three documents without changes: the lab, the guide to sets, and the guide to pools.

The user has only the cluster's `edit` role in one namespace. The release adds the rules for sets and pools to that
role, and KubeVirt adds the rules for VMs and VMIs. The autoscalers of all guides and examples work, too (R13).
"""

import os
import re
from pathlib import Path

import pytest
from msgspec import Struct

from sandbox.kubectl import kubectl_path
from tests.controlplane.documents import condition_of
from tests.controlplane.namespace import PoolNamespace
from tests.controlplane.waits import eventually
from tests.integration.metrics_api import MetricsAPI
from tests.manifests.documents import EXAMPLES, ROOT, load
from tests.programs import finished

pytestmark = pytest.mark.cluster

SET = "lab05-cirros-replicaset"
EVERYTHING = "vmirs,vmpool,hpa,vm,vmi,pods,controllerrevisions"


class Student(Struct, frozen=True):
    """A user with a shell in a directory with the files of the lab and the guides."""

    pools: PoolNamespace
    metrics: MetricsAPI
    directory: Path
    kubeconfig: Path

    def __call__(self, command: str, *, editor: str = "false") -> str:
        """Run a command in the shell and return its output. In the shell, the variable USER contains the namespace."""
        environment = {
            "PATH": f"{Path(kubectl_path()).parent}:{os.environ['PATH']}",
            "HOME": str(self.directory),
            "USER": self.pools.namespace,
            "KUBECONFIG": str(self.kubeconfig),
            "KUBE_EDITOR": editor,
        }
        done = finished(["bash", "-c", command], cwd=self.directory, env=environment)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout

    def table(self, command: str) -> list[list[str]]:
        """The cells of the printed table, without the ages."""
        header, *rows = [re.split(r"\s{2,}", line.strip()) for line in self(command).splitlines()] or [[]]
        ages = header.index("AGE") if "AGE" in header else len(header)
        return [[cell for sets, cell in enumerate(row) if sets != ages] for row in (header, *rows)]

    def sees(self, command: str, *rows: str) -> None:
        """Wait until a table has these rows."""
        wanted = [re.split(r"\s{2,}", row) for row in rows]
        eventually(lambda: self.table(f"{command} --namespace=$USER")[1:] == wanted, what=f"{command}: {wanted}")

    def file(self, name: str, content: str) -> None:
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


def example(name: str) -> str:
    return (ROOT / "manifests" / "examples" / f"{name}.yaml").read_text()


@pytest.fixture
def student(launched: PoolNamespace, metrics: MetricsAPI, tmp_path: Path) -> Student:
    """A user with a namespace, in which VMIs run in Pods."""
    name = launched.namespace
    launched.kubectl("create", "rolebinding", "edit", "--clusterrole=edit", f"--user={name}")
    student = Student(launched, metrics, tmp_path, launched.plane.write_kubeconfig(tmp_path / "kubeconfig", name))
    allowed = " && ".join(
        f"kubectl auth can-i {what} --namespace=$USER"
        for what in ("patch vmirs --subresource=scale", "get vmi", "list pods.metrics.k8s.io")
    )
    eventually(lambda: student(f"{allowed} || true").split() == ["yes"] * 3, what="the roles are aggregated")
    return student


def test_the_lab_from_top_to_bottom(student: Student) -> None:
    creates_a_set_and_looks_at_it(student)
    scales_it_by_hand(student)
    has_it_scaled_with_the_load(student)
    cleans_up(student)


def creates_a_set_and_looks_at_it(student: Student) -> None:
    student.file("labs/lab05/vmirs_lab05-cirros.yaml", example("replicaset-v1-lab05-cirros"))
    created = student("kubectl apply -f labs/lab05/vmirs_lab05-cirros.yaml --namespace=$USER")
    assert created == f"virtualmachineinstancereplicaset.kubevirt.io/{SET} created\n"
    student.sees("kubectl get vmirs", f"{SET}  2  2  2")
    assert student.table("kubectl get vmirs --namespace=$USER")[0] == ["NAME", "DESIRED", "CURRENT", "READY"]
    header, *vmis = student.table("kubectl get vmi --namespace=$USER")
    assert header == ["NAME", "PHASE", "IP", "NODENAME", "READY"]
    assert len(vmis) == 2
    for name, phase, _, node, ready in vmis:
        assert re.fullmatch(rf"{SET}[a-z0-9]{{5}}", name)
        assert (phase, ready) == ("Running", "True")
        assert node


def scales_it_by_hand(student: Student) -> None:
    """Scale a set with `kubectl scale`, and then with the commands of the lab."""
    said = student(f"kubectl scale vmirs {SET} --replicas 1 --namespace=$USER")
    assert said == f"virtualmachineinstancereplicaset.kubevirt.io/{SET} scaled\n"
    student.sees("kubectl get vmirs", f"{SET}  1  1  1")
    editor = student.directory / "editor"
    editor.write_text("#!/bin/sh\nexec sed -i '/^spec:/,/^status:/s/^  replicas: 1$/  replicas: 2/' \"$1\"\n")
    editor.chmod(0o755)
    said = student(f"kubectl edit vmirs {SET} --namespace=$USER", editor=str(editor))
    assert said == f"virtualmachineinstancereplicaset.kubevirt.io/{SET} edited\n"
    student.sees("kubectl get vmirs", f"{SET}  2  2  2")


def has_it_scaled_with_the_load(student: Student) -> None:
    reference = f"{SET}  VirtualMachineInstanceReplicaSet/{SET}"
    student.metrics.load(student.pools.namespace, 2)
    student.file("labs/lab05/hpa_lab05-cirros.yaml", example("hpa-v1-lab05-cirros"))
    created = student("kubectl apply -f labs/lab05/hpa_lab05-cirros.yaml --namespace=$USER")
    assert created == f"horizontalpodautoscaler.autoscaling/{SET} created\n"
    student.sees("kubectl get hpa", f"{reference}  cpu: 2%/75%  1  2  1")
    student.sees("kubectl get vmirs", f"{SET}  1  1  1")
    student.metrics.load(student.pools.namespace, 283)
    student.sees("kubectl get hpa", f"{reference}  cpu: 141%/75%  1  2  2")
    student.sees("kubectl get vmirs", f"{SET}  2  2  2")
    header, *pods = student.table("kubectl top pod --namespace=$USER")
    assert header == ["NAME", "CPU(cores)", "MEMORY(bytes)"]
    vmis = [row[0] for row in student.table("kubectl get vmi --namespace=$USER")[1:]]
    assert len(pods) == len(vmis) == 2
    for (pod, cpu, memory), vmi in zip(sorted(pods), sorted(vmis), strict=True):
        assert pod.startswith(f"virt-launcher-{vmi}-")
        assert (cpu, memory) == ("141m", "229Mi")
    student.metrics.load(student.pools.namespace, 2)
    student.sees("kubectl get hpa", f"{reference}  cpu: 2%/75%  1  2  1")
    student.sees("kubectl get vmirs", f"{SET}  1  1  1")


def cleans_up(student: Student) -> None:
    student.file("pool.yaml", example("pool-v1alpha1-vm-pool-cirros").replace("vm-pool-cirros", "lab05-webserver"))
    student("kubectl apply -f pool.yaml --namespace=$USER")
    student.pools.wait_ready(3, name="lab05-webserver")
    student("kubectl delete vmpool lab05-webserver --namespace=$USER")
    student(f"kubectl delete vmirs {SET} --namespace=$USER")
    student(f"kubectl delete hpa {SET} --namespace=$USER")
    eventually(
        lambda: student.pools.kubectl("get", EVERYTHING, "--output=name").stdout == "", what="all objects are deleted"
    )


def test_the_guide_to_sets_from_top_to_bottom(student: Student) -> None:
    student.file("testreplicaset.yaml", example("replicaset-v1alpha3"))
    created = student("kubectl create -f testreplicaset.yaml --namespace=$USER")
    assert created == "virtualmachineinstancereplicaset.kubevirt.io/testreplicaset created\n"
    student.sees("kubectl get vmirs", "testreplicaset  3  3  3")
    eventually(lambda: student.pools.reasons()["SuccessfulCreate"] == 3, what="the Events arrive")
    said = student("kubectl describe vmirs testreplicaset --namespace=$USER")
    assert re.search(r"Ready Replicas: +3\n +Replicas: +3\n", said)
    for vmi in student.pools.alive():
        assert re.search(rf"Normal +SuccessfulCreate .*-controller +Created virtual machine: {vmi}\n", said)
    student("kubectl scale vmirs testreplicaset --replicas 5 --namespace=$USER")
    student.sees("kubectl get vmirs", "testreplicaset  5  5  5")


def test_the_guide_to_pools_from_top_to_bottom(student: Student) -> None:
    student.file("vm-pool-cirros.yaml", example("pool-v1alpha1-vm-pool-cirros"))
    created = student("kubectl create -f vm-pool-cirros.yaml --namespace=$USER")
    assert created == "virtualmachinepool.pool.kubevirt.io/vm-pool-cirros created\n"
    student.pools.wait_ready(3, name="vm-pool-cirros")
    eventually(lambda: student.pools.told("SuccessfulCreate")["vm-pool-cirros"] == 3, what="the Events arrive")
    said = student("kubectl describe vmpool vm-pool-cirros --namespace=$USER")
    assert re.search(r"Label Selector: +kubevirt.io/vmpool=vm-pool-cirros\n", said)
    assert re.search(r"Ready Replicas: +3\n +Replicas: +3\n", said)
    for vm in student.pools.vms():
        told = f"Created VM {student.pools.namespace}/{vm}"
        assert re.search(rf"Normal +SuccessfulCreate .*virtualmachinepool-controller +{told}\n", said)
    student("kubectl scale vmpool vm-pool-cirros --replicas 5 --namespace=$USER")
    before = student.pools.wait_for_ordinals(*range(5), name="vm-pool-cirros")
    patch = """kubectl patch vm vm-pool-cirros-0 --type merge --patch '{"metadata":{"ownerReferences":null}}'"""
    student(f"{patch} --namespace=$USER")
    after = student.pools.wait_for_ordinals(*range(6), name="vm-pool-cirros")
    assert after["vm-pool-cirros-0"]["metadata"]["uid"] == before["vm-pool-cirros-0"]["metadata"]["uid"]
    assert "ownerReferences" not in after["vm-pool-cirros-0"]["metadata"]


AUTOSCALERS = [path for path in EXAMPLES if path.stem.startswith("hpa-")]


def test_every_autoscaler_of_the_examples_scales_its_target(launched: PoolNamespace) -> None:
    """R13: the autoscalers refer to sets and pools by the API versions that the guides use."""
    targets = {load(path)["metadata"]["name"]: path for path in EXAMPLES if path.stem.startswith(("replica", "pool"))}
    for path in AUTOSCALERS:
        target = load(path)["spec"]["scaleTargetRef"]["name"]
        launched.kubectl("apply", "-f", str(targets[target]), "-f", str(path))
    names = {load(path)["metadata"]["name"] for path in AUTOSCALERS}
    works = ("AbleToScale", "ScalingActive")

    def working() -> set[str]:
        items = launched.kubectl.json("get", "hpa")["items"]
        found = [each for each in items if all((condition_of(each, it) or {}).get("status") == "True" for it in works)]
        return {each["metadata"]["name"] for each in found}

    eventually(lambda: working() == names, what="all of them can count and scale")
