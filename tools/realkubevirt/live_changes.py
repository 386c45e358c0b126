"""Records what KubeVirt does when the template of a running VM changes, for docs/live-changes.md.

`python -m tools.realkubevirt.live_changes KUBECONFIG` records on a cluster with KubeVirt, which must not be in use. Its
VMs need not be real: a program that marks Pods and VMIs as running is enough. live_changes.yaml has the changes.
`make reference` writes the page from the recording.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any, Final

import yaml

from controller.kubevirt.normal_form import UNKNOWN, differences
from sandbox.admin import Admin, Rejected
from tools.generated import ROOT

Fields = dict[str, Any]
RECORDING: Final = ROOT / "tests" / "recordings" / "live-changes.json"
SCRIPT: Final = Path(__file__).with_suffix(".yaml")
WATCH_S: Final = 90.0
"""KubeVirt starts a migration about five seconds after a change. It waits a minute for a new interface before."""

UNDO_S: Final = 10.0
CORE, VIRT = "/api/v1", "/apis/kubevirt.io/v1"
CHANGING: Final = ("HotVCPUChange", "HotMemoryChange", "VolumesChange", "MigrationRequired")


class Cluster(Admin):
    def items(self, path: str) -> dict[str, Fields]:
        return {each["metadata"]["name"]: each for each in self.get(path)["items"]}

    def configure(self, strategy: str, methods: list[str]) -> None:
        [name] = self.items(f"{VIRT}/namespaces/kubevirt/kubevirts")
        settings = {"vmRolloutStrategy": strategy, "migrations": {"parallelMigrationsPerCluster": 1000}}
        spec = {"configuration": settings, "workloadUpdateStrategy": {"workloadUpdateMethods": methods}}
        self.patch(f"{VIRT}/namespaces/kubevirt/kubevirts/{name}", {"spec": spec})
        time.sleep(5)

    def prepare(self, namespace: str, script: Fields) -> None:
        self.create(f"{CORE}/namespaces", {"metadata": {"name": namespace}})
        for name in script["claims"]:
            size = {"storage": "1Gi"}
            path = f"{CORE}/namespaces/{namespace}/persistentvolumeclaims"
            spec = {"accessModes": ["ReadWriteMany"], "volumeMode": "Filesystem", "resources": {"requests": size}}
            self.create(path, {"metadata": {"name": name}, "spec": spec})
            bound = {"phase": "Bound", "accessModes": ["ReadWriteMany"], "capacity": size}
            self.patch(f"{path}/{name}/status", {"status": bound})
        for kind, body in script["objects"]:
            version = body["apiVersion"]
            self.create(f"{f'/apis/{version}' if '/' in version else CORE}/namespaces/{namespace}/{kind}", body)


def operations(changes: list[list[Any]]) -> list[Fields]:
    steps = ((each[0].replace("~", "/spec/template/spec/"), each[1:]) for each in changes)
    return [{"op": "add" if value else "remove", "path": path, "value": [*value, None][0]} for path, value in steps]


def conditions_of(item: Fields) -> dict[str, Fields]:
    return {each["type"]: each for each in item.get("status", {}).get("conditions", ())}


def is_running(vmi: Fields) -> bool:
    return vmi.get("status", {}).get("phase") == "Running" and "LiveMigratable" in conditions_of(vmi)


def start(cluster: Cluster, script: Fields, vms: str, *, can_migrate: bool) -> dict[str, str]:
    """Make a VM for each change, and start it. Return the changes by the name of the VM."""
    names = {f"vm-{number}": change for number, change in enumerate(script["changes"])}
    link = [] if can_migrate else script["immovable"]
    for name, change in names.items():
        vm = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": name}}
        cluster.create(vms, {**vm, "spec": {**script["vm"], "runStrategy": "Halted"}})
        first = [*link, *script["first"].get(change, ()), ["/spec/runStrategy", "Always"]]
        cluster.patch(f"{vms}/{name}", operations(first), "json")
    return names


def run(cluster: Cluster, script: Fields, namespace: str, *, can_migrate: bool) -> dict[str, Fields]:
    """Return what each change has caused, by the name of the change."""
    cluster.prepare(namespace, script)
    vms, vmis = (f"{VIRT}/namespaces/{namespace}/virtualmachine{kind}s" for kind in ("", "instance"))
    names = start(cluster, script, vms, can_migrate=can_migrate)
    while not (len(seen := cluster.items(vmis)) == len(names) and all(map(is_running, seen.values()))):
        time.sleep(1)
    time.sleep(3)  # virt-controller takes over the status of the interfaces and of the memory
    before, old = cluster.items(vmis), cluster.items(vms)
    results: dict[str, Fields] = {}
    for name, change in names.items():
        try:
            cluster.patch(f"{vms}/{name}", operations(script["changes"][change]), "json")
        except Rejected as answer:
            results[name] = {"refused": str(answer)}
    time.sleep(WATCH_S)
    after, new = cluster.items(vmis), cluster.items(vms)
    moved = {each["spec"]["vmiName"] for each in cluster.items(f"{vmis[:-1]}migrations").values()}
    for name in names.keys() - results.keys():
        results[name] = found(new[name], before[name], after.get(name), moves=name in moved)
    asked = [name for name, seen in results.items() if "RestartRequired" in seen]
    for name in asked:
        cluster.patch(f"{vms}/{name}", [{"op": "replace", "path": "/spec", "value": old[name]["spec"]}], "json")
    time.sleep(UNDO_S)
    for name, vm in cluster.items(vms).items():
        results[name] |= {"undone": "RestartRequired" not in conditions_of(vm)} if name in asked else {}
        cluster.send("DELETE", f"{vms}/{name}")
    return {change: results[name] for name, change in names.items()}


def found(vm: Fields, before: Fields, after: Fields | None, *, moves: bool) -> Fields:
    told = conditions_of(vm)
    asked: Fields = {name: told[name].get("message", "") for name in ("RestartRequired", "Failure") if name in told}
    if after is None or after["metadata"]["uid"] != before["metadata"]["uid"]:
        return {"ended": "restarted" if after else "stopped", **asked}
    marks = [f"{name}={each['status']}" for name, each in conditions_of(after).items() if name in CHANGING]
    paths = [path.removeprefix("spec.") for path in differences(before["spec"], after["spec"], UNKNOWN)]
    facts: Fields = {"changed": paths, "announced": marks, "migration": moves, **asked}
    return {name: value for name, value in facts.items() if value}


def record(kubeconfig: Path) -> None:
    """Record each setting that the recording does not have. Remove the file to record all."""
    cluster, script = Cluster(kubeconfig), yaml.safe_load(SCRIPT.read_text())
    rows: dict[str, Fields] = {change: {} for change in script["changes"]}
    rows |= json.loads(RECORDING.read_text()) if RECORDING.exists() else {}
    for number, (setting, (strategy, methods, can_migrate)) in enumerate(script["settings"].items()):
        if all(setting in seen for seen in rows.values()):
            continue
        cluster.configure(strategy, methods)
        results = run(cluster, script, f"live-{number}-{time.time_ns()}", can_migrate=can_migrate)
        for change, seen in results.items():
            rows[change][setting] = seen
        RECORDING.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    record(Path(sys.argv[1]))
