"""An API server with fixed answers for the checks before the start, and the problems that the checks find."""

import asyncio
import json
from datetime import UTC, datetime

from controller.config.settings import Config
from controller.leaderelection.lease import LEASES
from controller.preflight.checks import StartupError, check
from informers.errors import NotFound, TransportError
from tests.fakes.answers import AnswersByPath, Call, encoded

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


class Answers(AnswersByPath):
    """An API server in which the user has all permissions except those in `denied`."""

    def __init__(self) -> None:
        self.denied: set[tuple[str, str]] = set()
        super().__init__(
            {
                "/version": [{}],
                DISCOVERY: [SERVED],
                POOL_DISCOVERY: [{"resources": [{"name": POOLS}]}],
                DEFINITION: [not_found()],
                LEASES.path(): [{"items": []}],
            }
        )

    async def answer(self, call: Call) -> bytes:
        await asyncio.sleep(LATENCY_S)
        if call.method == "POST" and call.path not in self.by_path:
            self.asked.append(call.path)
            return encoded(self.reviewed(call.path, call.body))
        self.by_path.setdefault(call.path, [not_found()])
        return await super().answer(call)

    def reviewed(self, path: str, body: bytes) -> object:
        if path.endswith("/selfsubjectreviews"):
            return {"status": {"userInfo": {"username": "herder"}}}
        wanted = json.loads(body)["spec"]["resourceAttributes"]
        return {"status": {"allowed": (wanted["verb"], wanted["resource"]) not in self.denied}}


LATENCY_S = 0.01
ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


async def problems(server: Answers, config: Config | None = None) -> tuple[object, ...]:
    """The reasons why the controller refuses to start with this configuration."""
    try:
        await check(server, config or Config(leader_election_namespace="default"), now=wall_clock)
    except StartupError as error:
        return error.problems
    return ()


def wall_clock() -> datetime:
    return datetime.now(UTC)


KUBEVIRTS = "/apis/kubevirt.io/v1/kubevirts"
VIRT_CONTROLLER = "/apis/apps/v1/namespaces/kubevirt/deployments/virt-controller"


def beside_a_kubevirt() -> Answers:
    server = Answers()
    server.by_path |= {
        DISCOVERY: [{"resources": [*SERVED["resources"], {"name": "kubevirts"}]}],
        KUBEVIRTS: [{"items": [{"metadata": {"namespace": "kubevirt", "name": "kubevirt"}}]}],
        VIRT_CONTROLLER: [{"spec": {"template": {"spec": {"containers": []}}}}],
    }
    return server
