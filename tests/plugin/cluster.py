"""A cluster in memory for the commands of the plugin, with a fixed clock."""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from controller.events.event import EVENTS
from controller.kinds import POOLS, REPLICA_SETS
from controller.kubevirt.resources import (
    CONTROLLER_REVISIONS,
    DATA_VOLUMES,
    DISRUPTION_BUDGETS,
    PVCS,
    SERVICES,
    VMIS,
    VMS,
)
from controller.leaderelection.lease import LEASES
from controller.takeover.virt_controller import DEPLOYMENTS, KUBEVIRTS, VIRT_CONTROLLER
from informers.errors import ApiError, Forbidden
from informers.meta import ObjectKey
from informers.resource import Resource
from plugin.claim_secrets import SECRETS
from plugin.cli import main
from plugin.connection import Session
from plugin.flags import Flags
from tests import pool_builders
from tests.builders import NOW
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.patches import json_patch
from tests.fakes.rules import wire

POOL = POOLS.resource()
SET = REPLICA_SETS.resource()
A_DAY_AGO = NOW - timedelta(days=1)


class Cluster:
    """Objects in memory. `forbidden` has the plural names of the resources that the user may not read. `served` are the
    types of sets and pools that the cluster has.

    After each list of VMIs, the next function of `on_read` is called. So a test can change the cluster between two
    reads.
    """

    namespace = "default"

    def __init__(self) -> None:
        self.server = FakeApiServer(
            serves=(
                POOL,
                SET,
                VMS,
                VMIS,
                CONTROLLER_REVISIONS,
                DISRUPTION_BUDGETS,
                PVCS,
                DATA_VOLUMES,
                LEASES,
                KUBEVIRTS,
                DEPLOYMENTS,
                SERVICES,
                EVENTS,
                SECRETS,
            ),
            has_status=(POOL, SET),
            latency_s=0,
        )
        self.served: tuple[Resource[Any], ...] = (POOL, SET)
        self.forbidden: set[str] = set()
        self.has_kubevirt = False
        self.is_read_only = False
        self.writes: list[tuple[str, str, Mapping[str, str], Any]] = []
        self.on_read: list[Any] = []

    def put(self, resource: Resource[Any], *objects: Any) -> None:
        for each in objects:
            document = msgspec.json.decode(msgspec.json.encode(each))
            document = {"apiVersion": resource.api_version, "kind": resource.kind, **document}
            # The server would give an object without a creation time the present time.
            document["metadata"].setdefault("creationTimestamp", None)
            document["metadata"]["creationTimestamp"] = document["metadata"]["creationTimestamp"] or wire(A_DAY_AGO)
            self.server.put(resource, document)

    def put_pool(
        self,
        pool: Any,
        vms: Sequence[Any] = (),
        vmis: Iterable[Any] | None = None,
        *,
        old: Any = None,
        has_revision: bool = True,
    ) -> None:
        """Without `vmis`, each VM has its VMI. The pool has its revision, and that of `old`, an earlier state of it."""
        self.put(POOL, pool)
        self.put(VMS, *vms)
        self.put(VMIS, *(map(pool_builders.vmi, vms) if vmis is None else vmis))
        owners = [*([old] if old is not None else []), *([pool] if has_revision else [])]
        self.put(CONTROLLER_REVISIONS, *map(pool_builders.revision, owners))

    def install_kubevirt(self, *flags: str) -> None:
        """Install KubeVirt. Its virt-controller has these flags."""
        self.has_kubevirt = True
        place = {"namespace": "kubevirt", "name": "kubevirt", "generation": 1}
        self.server.put(KUBEVIRTS, {"metadata": place})
        container = {"name": VIRT_CONTROLLER, "args": list(flags)}
        spec = {"replicas": 2, "template": {"spec": {"containers": [container]}}}
        status = {"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2}
        metadata = {"namespace": "kubevirt", "name": VIRT_CONTROLLER, "generation": 1}
        self.server.put(DEPLOYMENTS, {"metadata": metadata, "spec": spec, "status": status})

    def document(self, resource: Resource[Any], name: str) -> Any:
        return self.server.document(resource, ObjectKey("default", name))

    async def request(self, method: str, path: str, **more: Any) -> bytes:
        accept = more.pop("accept", "")
        answer = await self._answer(method, path, **more)
        if "as=Table" in accept:
            return table_of(msgspec.json.decode(answer)["items"])
        label, _, value = (more.get("params") or {}).get("labelSelector", "").partition("=")
        if method != "GET" or not label:
            return answer
        page = msgspec.json.decode(answer)
        items = [each for each in page["items"] if (each["metadata"].get("labels") or {}).get(label) == value]
        return msgspec.json.encode({**page, "items": items})

    async def _answer(self, method: str, path: str, **more: Any) -> bytes:
        if path.count("/") == 3 and path.startswith("/apis/"):
            served = (*self.served, *((KUBEVIRTS,) if self.has_kubevirt else ()))
            plurals = [each.plural for each in served if each.group_path == path]
            return msgspec.json.encode({"resources": [{"name": plural} for plural in plurals]})
        plural = next((part for part in path.split("/") if part in self.forbidden), None)
        if plural and method == "GET":
            raise Forbidden(f'{plural} is forbidden: User "jane" cannot list them', code=403, reason="Forbidden")
        if method != "GET":
            params = more.get("params") or {}
            self.writes.append((method, path, params, msgspec.json.decode(more.get("body") or b"null")))
            if self.is_read_only:
                what = {"POST": "create", "PATCH": "patch"}[method]
                raise Forbidden(f'User "jane" cannot {what} resource "pools"', code=403, reason="Forbidden")
            if "dryRun" in params:
                body = msgspec.json.decode(more["body"])
                held = body if method == "POST" else self.server.document(*self.server._route(path)[:2])
                return msgspec.json.encode(json_patch(held, body) if isinstance(body, list) else held)
        answer = await self.server.request(method, path, **more)
        if method == "GET" and path.endswith(VMIS.plural) and self.on_read:
            self.on_read.pop(0)()
        return answer

    def answer_with(self, error: ApiError) -> None:
        self.server.fault_for = lambda request: error


def table_of(items: Sequence[Any]) -> bytes:
    """Return the table with the names and states of these objects, as the API server makes it."""
    status = [each.get("status") or {} for each in items]
    counts = any("replicas" in each for each in status)
    columns = ["Name", "Status", *(["Desired", "Ready"] if counts else [])]
    rows = [
        [item["metadata"]["name"], each.get("printableStatus") or each.get("phase")]
        + ([each.get("replicas"), each.get("readyReplicas")] if counts else [])
        for item, each in zip(items, status, strict=True)
    ]
    if any("revision" in each for each in items):
        columns = ["Name", "Controller", "Revision"]
        owners = [(item["metadata"].get("ownerReferences") or [{}])[0] for item in items]
        rows = [
            [item["metadata"]["name"], f"{owner.get('kind')}/{owner.get('name')}", item["revision"]]
            for item, owner in zip(items, owners, strict=True)
        ]
    table = {"columnDefinitions": [{"name": name} for name in columns], "rows": [{"cells": row} for row in rows]}
    return msgspec.json.encode(table)


class Shell:
    """Runs commands on a cluster and returns what they print."""

    def __init__(self, cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
        self.cluster = cluster
        self._capsys = capsys

    def __call__(self, line: str) -> tuple[int, str, str]:
        """The exit code, stdout and stderr of a command."""
        code = main(line.split())
        out, err = self._capsys.readouterr()
        return code, out, err

    def output(self, line: str) -> str:
        """The output of a successful command that writes nothing to stderr."""
        code, out, err = self(line)
        assert (code, err) == (0, "")
        return out

    def error(self, line: str, code: int = 1) -> str:
        """The error line of a failed command that prints nothing else."""
        found, out, err = self(line)
        assert (found, out, err.count("\n")) == (code, "", 1)
        return err.rstrip("\n")


def use(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Connect all commands to this cluster. The clock shows `NOW`, and a second passes with each pause."""

    @asynccontextmanager
    async def connect(flags: Flags) -> AsyncIterator[Session]:
        yield Session(cluster, flags)

    monkeypatch.setattr("plugin.connection.connect", connect)
    monkeypatch.setattr("plugin.clock.now", lambda: NOW + timedelta())
