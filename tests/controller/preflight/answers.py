"""An API server with fixed answers for the checks before the start, and the problems that the checks find."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from datetime import UTC, datetime

from controller.config.settings import Config
from controller.preflight.checks import StartupError, check
from informers.errors import ApiError, NotFound, TransportError

REFUSED = TransportError("connection refused", sent=False)
SETS = "virtualmachineinstancereplicasets"
DEFINITION = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{SETS}.kubevirt.io"
DISCOVERY = "/apis/kubevirt.io/v1"
POOL_DISCOVERY = "/apis/pool.kubevirt.io/v1beta1"
OLD_POOL_DISCOVERY = "/apis/pool.kubevirt.io/v1alpha1"
POOLS = "virtualmachinepools"
MACHINES = [{"name": "virtualmachineinstances"}, {"name": "virtualmachines"}]
SERVED = {"resources": [{"name": SETS}, {"name": f"{SETS}/status"}, *MACHINES]}
UNSERVED = {"resources": MACHINES}


def not_found() -> NotFound:
    return NotFound("not found", code=404)


class Answers:
    """An API server with a list of answers for each path. The last answer of a list is repeated."""

    def __init__(self) -> None:
        self.denied: set[tuple[str, str]] = set()
        self.by_path: dict[str, list[object]] = {
            "/version": [{}],
            DISCOVERY: [SERVED],
            POOL_DISCOVERY: [{"resources": [{"name": POOLS}]}],
            DEFINITION: [not_found()],
        }
        self.asked: list[str] = []

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout_s: float | None = None,
    ) -> bytes:
        await asyncio.sleep(0.01)
        self.asked.append(path)
        answer = self.reviewed(path, body) if method == "POST" else self.next(path)
        if isinstance(answer, ApiError):
            raise answer
        return answer if isinstance(answer, bytes) else json.dumps(answer).encode()

    def next(self, path: str) -> object:
        answers = self.by_path.get(path, [not_found()])
        return answers.pop(0) if len(answers) > 1 else answers[0]

    def reviewed(self, path: str, body: bytes | None) -> object:
        if path in self.by_path:
            return self.next(path)
        if path.endswith("/selfsubjectreviews"):
            return {"status": {"userInfo": {"username": "herder"}}}
        wanted = json.loads(body or b"")["spec"]["resourceAttributes"]
        return {"status": {"allowed": (wanted["verb"], wanted["resource"]) not in self.denied}}


ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


async def problems(server: Answers, config: Config | None = None) -> tuple[object, ...]:
    """The problems that stop a start with this configuration."""
    try:
        await check(server, config or Config(), now=wall_clock)
    except StartupError as error:
        return error.problems
    return ()


def wall_clock() -> datetime:
    return datetime.now(UTC)


def now() -> float:
    return asyncio.get_running_loop().time()


KUBEVIRTS = "/apis/kubevirt.io/v1/kubevirts"
VIRT_CONTROLLER = "/apis/apps/v1/namespaces/kubevirt/deployments/virt-controller"


def beside_a_kubevirt() -> Answers:
    """A cluster whose KubeVirt reconciles both kinds."""
    server = Answers()
    server.by_path |= {
        DISCOVERY: [{"resources": [*SERVED["resources"], {"name": "kubevirts"}]}],
        KUBEVIRTS: [{"items": [{"metadata": {"namespace": "kubevirt", "name": "kubevirt"}}]}],
        VIRT_CONTROLLER: [{"spec": {"template": {"spec": {"containers": []}}}}],
    }
    return server
