"""One world: an API server with KubeVirt, a network with faults, and two controllers, on one event loop."""

import asyncio
import random
import traceback
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any, Final, TypeVar

import msgspec
import structlog

from controller import kinds
from controller.config.settings import Config
from controller.events.event import EVENTS
from controller.kubevirt.resources import (
    CONTROLLER_REVISIONS,
    DATA_VOLUMES,
    DISRUPTION_BUDGETS,
    MIGRATIONS,
    PVCS,
    VM_REQUESTS,
    VMI_REQUESTS,
    VMIS,
    VMS,
)
from controller.leaderelection.lease import LEASES
from controller.takeover.virt_controller import KUBEVIRTS
from tests.fakes.requests import AnyResource, Document
from tests.simulation.claims import PROTECTION, ClaimProtection
from tests.simulation.faults import Faults
from tests.simulation.foretold import Foretold
from tests.simulation.kubevirt import GUEST_FINALIZER, SimulatedKubeVirt
from tests.simulation.live import IMMOVABLE, LIVE_UPDATE
from tests.simulation.loop import SimulatedLoop
from tests.simulation.network import Network
from tests.simulation.replica import Replica, follow_tasks, until_ended
from tests.simulation.server import Change, SimulatedServer

T = TypeVar("T")

BEGIN: Final = datetime(2026, 8, 1, 12, tzinfo=UTC)
NAMESPACES: Final = ("default", "shop")
KUBECONFIG: Final = Path(__file__).with_name("kubeconfig.yaml")
POOLS: Final = kinds.POOLS.resource()
SETS: Final = kinds.REPLICA_SETS.resource()
SERVED: Final = (
    POOLS,
    SETS,
    VMS,
    VMIS,
    PVCS,
    DATA_VOLUMES,
    CONTROLLER_REVISIONS,
    DISRUPTION_BUDGETS,
    MIGRATIONS,
    VM_REQUESTS,
    VMI_REQUESTS,
    LEASES,
    EVENTS,
    KUBEVIRTS,
)
UNSTABLE: Final = (LEASES, EVENTS)
"""The resources whose objects contain a random identity of the process."""


class Options(msgspec.Struct, frozen=True):
    """The traits of a world that do not change during a life."""

    cdi: bool = True
    syncs_labels: bool = True
    budgets: bool = True
    standby: bool = True
    max_replicas: int = 40
    rollout: str = ""
    """KubeVirt's rollout strategy, or "" for an old KubeVirt."""

    plugs: bool = False
    """True if KubeVirt plugs volumes into VMIs that run, or asks for a restart. So does 1.9."""

    migrations: bool = False
    """True if all pools start live migrations, because KubeVirt starts none."""

    takeover: bool = False
    """True if KubeVirt's controllers made the sets and pools, and the API server has KubeVirt's schema."""

    elsewhere: str = ""
    """The name of a set or pool that is in the second namespace."""


class World:
    """Make it in the running loop. `chance` makes the choices of the network, of KubeVirt and of the server."""

    def __init__(self, chance: Random, options: Options) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop)
        self.loop = loop
        self.options = options
        self.faults = Faults()
        self.foretold: list[Foretold] = []
        """What users were told before they scaled."""

        self.errors: list[str] = []
        """Unexpected errors in the log, and why processes ended."""

        self.server = SimulatedServer(
            faults=self.faults,
            chance=Random(chance.random()),
            serves=SERVED,
            has_status=(POOLS, SETS, VMS),
            default_status={VMS: {"printableStatus": "Stopped"}},
            finalizers={VMIS: [GUEST_FINALIZER], PVCS: [PROTECTION]},
            now=self.now,
        )
        ClaimProtection(self.server)
        self.network = Network(self.server, self.faults, Random(chance.random()))
        self.kubevirts = {
            each: SimulatedKubeVirt(self.server, Random(chance.random()), now=self.now, options=options, namespace=each)
            for each in NAMESPACES[: 2 if options.elsewhere else 1]
        }
        self.server.on_update = lambda request: self.kubevirts[request.key.namespace].answer(request)
        if options.rollout:
            strategy = options.rollout.partition(",")[0]
            methods = ["LiveMigrate"] if options.rollout in (LIVE_UPDATE, IMMOVABLE) else []
            spec = {
                "configuration": {"vmRolloutStrategy": strategy},
                "workloadUpdateStrategy": {"workloadUpdateMethods": methods},
            }
            status = {"observedKubeVirtVersion": "v1.9.0" if options.plugs else "v1.8.0"}
            meta = {"name": "kubevirt", "namespace": "kubevirt"}
            self.server.put(KUBEVIRTS, {"metadata": meta, "spec": spec, "status": status})
        config = Config(
            kubeconfig=str(KUBECONFIG),
            mode="takeover" if options.takeover else "standalone",
            second_writer_check=False,
            in_pod=True,
            leader_election_namespace="vmherd",
            metrics_bind_address=None,
            health_probe_bind_address=None,
            disruption_budgets=options.budgets,
            migrations=options.migrations,
            max_replicas=options.max_replicas,
        )
        names = ("vmherd-a", "vmherd-b") if options.standby else ("vmherd-a",)
        self.replicas = [Replica(name, config, self.network, self.now, self.errors.append) for name in names]

    def namespace_of(self, owner: str) -> str:
        return NAMESPACES[owner == self.options.elsewhere]

    def everywhere(self, resource: AnyResource) -> dict[str, Document]:
        """The objects of all namespaces by their names. Only budgets may have equal names."""
        return {key.name: each for key, each in self.server._of(resource).items()}

    def now(self) -> datetime:
        return BEGIN + timedelta(seconds=self.loop.now)

    def history_hash(self) -> str:
        """A digest of all changes. Two runs of one life have the same digest."""
        digest = sha256()
        for change in self.server.changes:
            if change.resource not in UNSTABLE:
                digest.update(shown(change).encode())
        return digest.hexdigest()[:16]


def shown(change: Change) -> str:
    verb = "create" if change.before is None else "delete" if change.after is None else "change"
    body: Document = change.last
    text = msgspec.json.encode(body, order="deterministic").decode()
    return f"{change.at:.4f} {change.actor} {verb} {change.resource.plural} {change.key} {text}\n"


def run_world(seed: str, live: Callable[[World], Coroutine[Any, Any, T]], options: Options) -> tuple[World, T]:
    """Make a world, let `live` run in it, and end all processes. The seed makes all choices."""
    random.seed(seed)  # the controllers take their jitter from this generator
    chance = Random(f"{seed} world")
    loop = SimulatedLoop(Random(f"{seed} loop"))
    follow_tasks(loop)
    asyncio.set_event_loop(loop)

    async def whole() -> tuple[World, T]:
        world = World(chance, options)
        loop.set_exception_handler(lambda _, context: world.errors.append(_described(context)))
        _LOGGED.append(world.errors)
        try:
            for replica in world.replicas:
                replica.start()
            result = await live(world)
        finally:
            await until_ended(world.replicas)
            _LOGGED.pop()
        return world, result

    try:
        return loop.run_until_complete(whole())
    finally:
        asyncio.set_event_loop(None)
        loop.close()


def _described(context: dict[str, Any]) -> str:
    error = context.get("exception")
    where = traceback.extract_tb(error.__traceback__)[-1] if error is not None and error.__traceback__ else ""
    return f"loop: {context['message']}: {error!r} {where}"


_LOGGED: Final[list[list[str]]] = []


def _keep(logger: Any, method: str, event: dict[str, Any]) -> str:
    """Keep the errors of the log. Write nothing."""
    error = event.get("exc_info")
    if _LOGGED and (error or method in ("error", "critical", "exception")):
        _LOGGED[-1].append(f"log: {event}")
    raise structlog.DropEvent


def configure_logs() -> None:
    """Let the controllers log nothing but errors, which the world keeps."""
    structlog.configure(
        processors=[structlog.processors.format_exc_info, _keep],
        wrapper_class=structlog.make_filtering_bound_logger(40),
        cache_logger_on_first_use=False,
    )
