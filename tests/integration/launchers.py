"""virt-launcher Pods: a thread of the test creates the Pod of each running VMI and writes its status.

A Pod has its VMI's labels and is deleted with the VMI. Autoscalers need Pods: an autoscaler counts the Pods that match
the selector of a set or pool. The autoscaler divides the CPU usage of these Pods by their CPU requests.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from sandbox.admin import Admin, Rejected
from sandbox.controlplane import ControlPlane
from sandbox.launchers.pods import new_pod
from sandbox.vmis import VMIS

PERIOD_S = 0.1


class Launchers:
    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        self._admin = Admin(plane.kubeconfig)
        self._vmis = f"/apis/kubevirt.io/v1/namespaces/{namespace}/virtualmachineinstances"
        self._pods = f"/api/v1/namespaces/{namespace}/pods"

    def keep_in_step(self) -> None:
        """Create, update and delete Pods once, so that each running VMI has a Pod with the same readiness."""
        vmis = {vmi["metadata"]["uid"]: vmi for vmi in self._admin.get(self._vmis)["items"] if _is_running(vmi)}
        pods = {_owner_of(pod): pod for pod in self._admin.get(self._pods)["items"]}
        for uid, pod in pods.items():
            if uid not in vmis:
                self._let_go(pod)
        for uid, vmi in vmis.items():
            pod = pods.get(uid) or self._start(vmi)
            if pod is not None and _readiness(pod) != _readiness(vmi):
                self._tell(pod, ready=_readiness(vmi))

    def _start(self, vmi: dict[str, Any]) -> dict[str, Any] | None:
        body = json.dumps(pod_of(vmi)).encode()
        try:
            started: dict[str, Any] = json.loads(self._admin.send("POST", self._pods, body, "application/json"))
        except Rejected as error:
            if error.status not in (403, 409):
                raise
            return None  # the namespace has no service account yet, or is terminating: retry in the next round
        return started

    def _tell(self, pod: dict[str, Any], *, ready: str) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        conditions = [{"type": "Ready", "status": ready, "lastTransitionTime": now}]
        began = (pod.get("status") or {}).get("startTime") or now
        change = {"status": {"phase": "Running", "startTime": began, "conditions": conditions}}
        path = f"{self._pods}/{pod['metadata']['name']}/status"
        self._unless_gone("PATCH", path, change, "application/merge-patch+json")

    def _let_go(self, pod: dict[str, Any]) -> None:
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
        self._unless_gone("DELETE", f"{self._pods}/{pod['metadata']['name']}", options, "application/json")

    def _unless_gone(self, method: str, path: str, body: dict[str, Any], content_type: str) -> None:
        try:
            self._admin.send(method, path, json.dumps(body).encode(), content_type)
        except Rejected as error:
            if error.status != 404:
                raise


@contextmanager
def launchers(plane: ControlPlane, namespace: str) -> Iterator[None]:
    """Keep a Pod for each running VMI of this namespace while the block runs. An error in the loop fails the test."""
    stop = threading.Event()
    troubles: list[Exception] = []

    def loop() -> None:
        kept = Launchers(plane, namespace)
        while not stop.wait(PERIOD_S):
            try:
                kept.keep_in_step()
            except Exception as error:
                troubles.append(error)
                return

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    assert not troubles, f"the Pods are not kept in step: {troubles[0]}"


def pod_of(vmi: dict[str, Any]) -> dict[str, Any]:
    """The Pod of a VMI, bound to the VMI's node."""
    decoded = VMIS.decode(json.dumps(vmi).encode())
    pod: dict[str, Any] = json.loads(new_pod(decoded, node=vmi["status"]["nodeName"]).body)
    return pod


def _owner_of(pod: dict[str, Any]) -> str:
    references = pod["metadata"].get("ownerReferences") or ()
    return next((reference["uid"] for reference in references), "")


def _is_running(vmi: dict[str, Any]) -> bool:
    return (vmi.get("status") or {}).get("phase") == "Running" and "deletionTimestamp" not in vmi["metadata"]


def _readiness(item: dict[str, Any]) -> str:
    """The status of the condition Ready of a VMI or Pod."""
    conditions = (item.get("status") or {}).get("conditions") or ()
    return next((each["status"] for each in conditions if each["type"] == "Ready"), "")
