"""The controller as a process, and a test's namespace as a user sees it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sandbox.admin import Admin, Rejected
from sandbox.audit import AuditRecord
from sandbox.controlplane import ControlPlane
from sandbox.processes import free_ports
from tests.cluster import Kubectl
from tests.forked import ForkedProgram
from tests.integration.waits import eventually, stays, steady
from tests.release import Pod, pod

MERGE = "application/merge-patch+json"
SERVER_SIDE_APPLY = "application/apply-patch+yaml"
FORBIDDEN = (403, 422)
"""The status codes of a refusal by a quota and by an admission policy."""

NOT_FOUND = 404
GROUP_VERSION = "kubevirt.io/v1"
CONTROLLER = "controller"
LABELS = {"app": "herd"}
PATIENT_LEASE = ("--lease-duration", "90s", "--renew-deadline", "80s", "--retry-period", "1s")
"""Flags for a leader that keeps its lease when a busy machine stops it, or the API server, for some seconds."""

ANSWERS_WITHIN_S = 30
SPEC: dict[str, Any] = {"domain": {"resources": {"requests": {"memory": "64M"}}}}


class ControllerProcess:
    def __init__(
        self,
        process: subprocess.Popen[bytes] | ForkedProgram,
        log: Path,
        metrics_port: int,
        health_port: int,
        own: Pod | None = None,
    ) -> None:
        self.process = process
        self.log = log
        self._lines: list[dict[str, Any]] = []
        self._read_to = 0
        self.pod = own
        self.metrics_url = f"http://127.0.0.1:{metrics_port}/metrics"
        self.health_url = f"http://127.0.0.1:{health_port}"

    def lines(self, **wanted: object) -> list[dict[str, Any]]:
        """The log lines that have these fields."""
        self._read_on()
        return [line for line in self._lines if all(line.get(name) == value for name, value in wanted.items())]

    def _read_on(self) -> None:
        """Parse only the new lines, because the log is long and tests read it many times a second."""
        with self.log.open("rb") as log:
            log.seek(self._read_to)
            new, end, _rest = log.read().rpartition(b"\n")
        self._read_to += len(new) + len(end)
        self._lines += [json.loads(line) for line in new.splitlines() if line.startswith(b"{")]

    def passes(self, namespace: str) -> int:
        """The number of reconciliations for the sets of a namespace."""
        return len(self.lines(msg="reconciled", namespace=namespace))

    @property
    def working(self) -> bool:
        if self.process.poll() is not None:
            pytest.fail(f"the controller ended with {self.process.returncode}:\n{self.log.read_text()[-3000:]}")
        return bool(self.lines(msg="working"))

    def metrics(self) -> str:
        with urllib.request.urlopen(self.metrics_url, timeout=ANSWERS_WITHIN_S) as answer:
            return str(answer.read().decode())

    def health(self, endpoint: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"{self.health_url}/{endpoint}", timeout=ANSWERS_WITHIN_S) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    @property
    def credential(self) -> str:
        """The credential ID of the process in the audit log. Other Pods with the same account have other IDs."""
        assert self.pod is not None, "it was given a kubeconfig"
        return self.pod.credential

    def kill(self) -> None:
        """Kill the process without warning, like a power failure of the node."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """Send SIGTERM, wait, and return the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)


@contextmanager
def controller_process(
    who: ControlPlane | Pod | Path,
    directory: Path,
    *flags: str,
    wait: bool = True,
    through: Callable[[Path, str], Path] | None = None,
    program: str = CONTROLLER,
) -> Iterator[ControllerProcess]:
    """Run the controller while the block runs. The argument `who` decides the controller's permissions and its first
    flags:

    - A control plane: the arguments, environment and account of the Deployment in the chart's release. After the block,
      the test fails if a permission was missing.
    - A Pod: the Pod's arguments, environment and account. A missing permission does not fail the test.
    - A path of a kubeconfig: the permissions of that kubeconfig, and only the given flags.

    `through` writes the kubeconfig for a token, for example with the address of a proxy. `program` is the module to
    run. Only the module `controller` is forked (see tests/forked.py).
    """
    if isinstance(who, Path):
        with _program(directory, ["--kubeconfig", str(who)], flags, wait=wait, program=program) as running:
            yield running
        return
    given = isinstance(who, Pod)
    own, since = (who, 0) if isinstance(who, Pod) else (pod(who, *flags), who.audit_position())
    kubeconfig = directory / f"{own.account}-{own.credential[-12:]}.kubeconfig"
    if through is None:
        own.plane.write_kubeconfig(kubeconfig, own.account, token=own.token)
    else:
        through(kubeconfig, own.token)
    arguments = [*own.arguments, "--kubeconfig", str(kubeconfig)]
    with _program(directory, arguments, flags, own, wait=wait) as running:
        yield running
    lacking = set() if given else own.lacks(since)
    assert not lacking, f"{own.account} lacks permissions: {sorted(lacking)}"


@contextmanager
def _program(
    directory: Path,
    arguments: list[str],
    flags: tuple[str, ...],
    own: Pod | None = None,
    *,
    wait: bool,
    program: str = CONTROLLER,
) -> Iterator[ControllerProcess]:
    """Run `vmherd run` with free ports and a JSON log. If a flag is given twice, the last value counts."""
    metrics_port, health_port = free_ports(2)
    command = ["run", *arguments, "--log-format", "json", "--log-level", "debug"]
    command += ["--metrics-bind-address", f"127.0.0.1:{metrics_port}"]
    command += ["--health-probe-bind-address", f"127.0.0.1:{health_port}", *flags]
    log = directory / f"controller-{metrics_port}.log"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("VMHERD_")}
    environment |= own.environment if own else {}
    process = _start(program, command, log, environment)
    running = ControllerProcess(process, log, metrics_port, health_port, own)
    try:
        if wait:
            eventually(lambda: running.working, what="the controller is working")
        yield running
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def _start(
    program: str, arguments: list[str], log: Path, environment: dict[str, str]
) -> subprocess.Popen[bytes] | ForkedProgram:
    """Start a module that has the commands of vmherd. Its output goes to `log`."""
    log.touch()
    if program == CONTROLLER:
        return ForkedProgram(program, arguments, log, environment=environment)
    with log.open("wb") as output:
        command = [sys.executable, "-m", program, *arguments]
        return subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)


class ReplicaSetNamespace:
    """A namespace with replica sets and VMIs: creates, changes and reads its objects.

    `uncounted` are the resources whose requests `requests` leaves out.
    """

    uncounted = frozenset({"events", "controllerrevisions"})

    def __init__(self, plane: ControlPlane, namespace: str, *, group: str = "kubevirt.io") -> None:
        self.plane = plane
        self.namespace = namespace
        self.kubectl = Kubectl(plane.kubeconfig, namespace)
        self._admin = Admin(plane.kubeconfig)
        self._sets = f"/apis/{group}/v1/namespaces/{namespace}/virtualmachineinstancereplicasets"
        self._vmis = f"/apis/kubevirt.io/v1/namespaces/{namespace}/virtualmachineinstances"
        self._group = group
        self.since = plane.audit_position()

    def make_set(
        self,
        replicas: int = 3,
        *,
        name: str = "herd",
        spec: dict[str, Any] | None = None,
        template_metadata: dict[str, Any] | None = None,
        annotations: dict[str, str] | None = None,
        **more: Any,
    ) -> dict[str, Any]:
        body = {
            "apiVersion": f"{self._group}/v1",
            "kind": "VirtualMachineInstanceReplicaSet",
            "metadata": {"name": name, "annotations": annotations or {}},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": LABELS},
                "template": {"metadata": {"labels": LABELS, **(template_metadata or {})}, "spec": spec or SPEC},
                **more,
            },
        }
        return self._send("POST", self._sets, body)

    def change_set(self, change: dict[str, Any], *, name: str = "herd") -> dict[str, Any]:
        return self._send("PATCH", f"{self._sets}/{name}", change)

    def set(self, name: str = "herd") -> dict[str, Any]:
        return self._send("GET", f"{self._sets}/{name}")

    def set_exists(self, name: str = "herd") -> bool:
        return any(each["metadata"]["name"] == name for each in self._send("GET", self._sets)["items"])

    def status(self, name: str = "herd") -> dict[str, Any]:
        return self.set(name).get("status") or {}

    def change_status(self, status: dict[str, Any], *, name: str = "herd") -> None:
        """Overwrite fields of a set's status."""
        self._send("PATCH", f"{self._sets}/{name}/status", {"status": status})

    def condition(self, type_: str, *, name: str = "herd") -> dict[str, Any] | None:
        return next((c for c in self.status(name).get("conditions") or () if c["type"] == type_), None)

    def make_vmi(self, name: str, *, labels: dict[str, str] | None = None, owner: Any = None) -> dict[str, Any]:
        metadata: dict[str, Any] = {"name": name, "labels": labels or LABELS}
        if owner is not None:
            metadata["ownerReferences"] = [owner]
        body = {"apiVersion": GROUP_VERSION, "kind": "VirtualMachineInstance", "metadata": metadata, "spec": SPEC}
        return self._send("POST", self._vmis, body)

    def vmis(self) -> dict[str, dict[str, Any]]:
        return {vmi["metadata"]["name"]: vmi for vmi in self._send("GET", self._vmis)["items"]}

    def exactly(self, name: str = "herd") -> tuple[Any, list[Any]]:
        """The spec of the template and the specs of the VMIs, for an exact comparison. Numbers are kept as text, and
        the order of keys counts.
        """

        def read(path: str) -> Any:
            return json.loads(self._admin.send("GET", path), parse_int=str, parse_float=str, object_pairs_hook=_Pairs)

        template = read(f"{self._sets}/{name}")["spec"]["template"]["spec"]
        return template, [item["spec"] for item in read(self._vmis)["items"]]

    def alive(self) -> dict[str, dict[str, Any]]:
        """The VMIs without a deletion timestamp, by name."""
        return {name: vmi for name, vmi in self.vmis().items() if "deletionTimestamp" not in vmi["metadata"]}

    def change_vmi(self, name: str, change: dict[str, Any]) -> dict[str, Any]:
        return self._send("PATCH", f"{self._vmis}/{name}", change)

    def play(self, name: str, *, phase: str = "Running", ready: bool = True, node: str = "node01", **more: Any) -> None:
        """Write a phase and a Ready condition to a VMI's status, as KubeVirt does."""
        since = more.pop("since", "2026-01-01T00:00:00Z")
        condition = {"type": "Ready", "status": str(ready), "lastTransitionTime": since, **more}
        status = {"phase": phase, "conditions": [condition], "nodeName": node}
        self.change_vmi(name, {"status": status})

    def play_all(self) -> None:
        for name in self.alive():
            self.play(name)

    def delete_vmi(self, name: str) -> None:
        self._admin.send("DELETE", f"{self._vmis}/{name}")

    def wait_for(self, count: int, *, within_s: float = 30.0) -> dict[str, dict[str, Any]]:
        """Wait until `count` VMIs are alive and the set's status reports that number."""

        def there() -> dict[str, dict[str, Any]] | None:
            alive = self.alive()
            return alive if len(alive) == count and self.status().get("replicas", 0) == count else None

        eventually(lambda: there() is not None, within_s=within_s, what=f"{count} VMIs")
        return self.alive()

    def events(self) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = self._send("GET", f"/api/v1/namespaces/{self.namespace}/events")["items"]
        return items

    def reasons(self) -> Counter[str]:
        """The number of Events for each reason, repeats included."""
        counted: Counter[str] = Counter()
        for event in self.events():
            counted[event["reason"]] += event.get("count") or 1
        return counted

    def requests(self, *verbs: str, since: int | None = None) -> list[AuditRecord]:
        """Return the requests of controllers in this namespace, except those for Events and for the history of sets.

        Without the argument `since`, return the requests since the start of the test.
        """
        records = self.plane.audit_records(self.since if since is None else since)
        return [
            record
            for record in records
            if record.user_agent.startswith("vmherd/")
            and record.namespace == self.namespace
            and record.resource not in self.uncounted
            and (not verbs or record.verb in verbs)
        ]

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """Send a request as the administrator, without the start of kubectl. Raises Rejected."""
        return self._send(method, path, body)

    def _send(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        encoded = None if body is None else json.dumps(body).encode()
        content_type = MERGE if method == "PATCH" else "application/json" if encoded else ""
        return json.loads(self._admin.send(method, path, encoded, content_type))

    def apply(self, path: str, name: str, document: dict[str, Any]) -> None:
        """Create or change an object, as `kubectl apply --server-side` does."""
        body = json.dumps({**document, "metadata": {"name": name}}).encode()
        self._admin.send("PATCH", f"{path}/{name}?fieldManager=tests&force=true", body, SERVER_SIDE_APPLY)

    def refusal(self, method: str, path: str, body: dict[str, Any] | None = None) -> str:
        """The server's message if it forbids a dry run of this request, or "" if nothing forbids the request."""
        try:
            self._send(method, f"{path}?dryRun=All", body)
        except Rejected as refused:
            if refused.status in FORBIDDEN:
                return str(refused)
            if refused.status != NOT_FOUND:
                raise
        return ""

    def make_config_map(self, name: str) -> dict[str, Any]:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
        return self._send("POST", f"/api/v1/namespaces/{self.namespace}/configmaps", body)


def quiet_down(objects: ReplicaSetNamespace, program: ControllerProcess) -> int:
    """Wait until no reconciliation has run in the namespace for a while. Return the number of past reconciliations."""
    return steady(lambda: program.passes(objects.namespace), for_s=2.0, within_s=60)


class _Pairs(list[Any]):
    """A JSON object that keeps the order of its keys."""

    def __getitem__(self, key: Any) -> Any:
        return dict(self)[key] if isinstance(key, str) else super().__getitem__(key)


def owner_uid(vmi: dict[str, Any]) -> str:
    """The UID of a VMI's controller, or "" if there is none."""
    return next((r["uid"] for r in vmi["metadata"].get("ownerReferences") or () if r.get("controller")), "")


def owned_by(vmis: Iterable[dict[str, Any]], owner: dict[str, Any]) -> list[str]:
    return [vmi["metadata"]["name"] for vmi in vmis if owner_uid(vmi) == owner["metadata"]["uid"]]


__all__ = [
    "GROUP_VERSION",
    "LABELS",
    "PATIENT_LEASE",
    "SPEC",
    "ControllerProcess",
    "Rejected",
    "ReplicaSetNamespace",
    "controller_process",
    "eventually",
    "owned_by",
    "quiet_down",
    "stays",
    "steady",
]
