"""The composition root: creates every component once, and starts and stops the components in order.

This tree shows the order of the start. A component stops before all components above it in the tree.

open the API clients; select the mode if it is `auto`
└── open the HTTP server; do the checks before the start
    └── start the event recorder, the loop monitor and the informers; wait for the first lists
        └── wait for the lease
            └── run the workers until a signal; then let running reconciliations end, send Events and release the lease
"""

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple, TypeVar

import structlog
from prometheus_client import CollectorRegistry

from controller import logs
from controller.assembly import Assembly, OpenClient, Parts, Platform, assemble_kinds
from controller.config.settings import Config, published
from controller.events.recorder import EventRecorder, announce
from controller.kinds import KINDS
from controller.leaderelection.elector import ElectionImpossible, LeaderElector, LeaseLost, new_identity
from controller.leaderelection.lease import QUARANTINE, SECOND_WRITER, SETTINGS
from controller.leaderelection.other_leader import SeveralLeases
from controller.leaderelection.own_thread import Deadman
from controller.metrics.registry import Metrics
from controller.preflight import checks
from controller.preflight.checks import StartupError
from controller.preflight.rollout_strategy import RolloutStrategy
from controller.running import ServiceEnded, is_set_within, leaf_errors, running, stopped_by_signals
from controller.runtime.dry_run import forbid_writes
from controller.runtime.settle.cache_check import CacheCheck
from controller.runtime.workers.controller import Controller
from controller.runtime.workers.loop_share import LoopShare
from controller.server.admin import admin_routes
from controller.server.authorization import Reviewer
from controller.server.certificates import Certificate, FileCertificate, SelfSignedCertificate
from controller.server.debug import debug_pages
from controller.server.health import LoopMonitor, live_checks, ready_checks
from controller.server.http import BindError, HttpServer, Secure
from controller.takeover.other_process import WriterSample, writer_name
from controller.takeover.second_writer import SecondWriterWatch
from controller.version import PROGRAM, revision, version
from informers.http.client import ApiClient
from informers.http.configuration import Credentials, load_credentials
from informers.http.gate import Gate
from informers.http.kubeconfig import ConfigurationError
from informers.informer import SharedInformer

log = structlog.get_logger()

T = TypeVar("T")

PLATFORM = Platform()
EVENTS_FLUSHED_WITHIN_S = 5.0

SYNC_POLL_S = 0.1


class Fatal(Exception):
    """An error that ends the program with a failure. Each of `lines` is an error message for the user."""

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


async def run(config: Config) -> int:
    """Reconcile until SIGTERM or SIGINT, then stop all components and return 0. Raises Fatal."""
    logs.configure(config.log_level, config.log_format)
    stop = asyncio.Event()
    try:
        with stopped_by_signals(stop):
            # The objects of the first lists stay, and have no reference cycles. To visit them would block the loop.
            await serve(config, stop, built=_freeze_program, synced=gc.freeze)
    except (Exception, ExceptionGroup) as error:
        raise _fatal(error) from error
    return 0


class _Program(NamedTuple):
    parts: Parts
    informers: Sequence[SharedInformer[Any]]
    assemblies: Sequence[Assembly]
    optional: Sequence[SharedInformer[Any]]
    elector: LeaderElector | None
    strategy: RolloutStrategy
    watch: SecondWriterWatch
    sample: WriterSample
    server: HttpServer


async def serve(
    requested: Config,
    stop: asyncio.Event,
    *,
    built: Callable[[], None] = lambda: None,
    synced: Callable[[], None] = lambda: None,
    platform: Platform = PLATFORM,
) -> None:
    """Reconcile until `stop` is set, then stop all components.

    The function changes no global state of the process, such as signal handlers. So several controllers can run in one
    process. `built` is called before the first lists, and `synced` after them. Errors are not converted to Fatal.
    """
    metrics = Metrics(CollectorRegistry(), version=version(), revision=revision())
    credentials = await load_credentials(requested.kubeconfig, requested.context)
    if credentials.notice:
        log.warning(credentials.notice)
    connect = partial(_client, platform.open_client, metrics)
    async with (
        connect(credentials, max_inflight=requested.max_inflight) as client,
        # The checks and the authorization of metrics readers do not wait for requests of the reconciliation.
        connect(credentials, "checks") as free_client,
    ):
        if (resolved := await _ended_before(stop, checks.resolve(free_client, requested))).cancelled():
            return
        config = resolved.result()
        monitor = LoopMonitor(metrics.loop_lagged, clock=platform.clock)
        share = LoopShare(platform.clock, platform.cpu)
        metrics.show_quarantine(share.quarantined)
        watch = SecondWriterWatch(free_client, config, now=platform.now, report=metrics.second_writer)
        settings = published(config)

        def notes(inherited: str) -> Mapping[str, str]:
            quarantine = share.note(inherited, monitor.away_s())
            return {QUARANTINE: quarantine, SECOND_WRITER: watch.reason, SETTINGS: settings}

        elector = _elector(config, metrics, platform, notes) if config.elects else None
        client.gate = _gate(config, elector, watch)
        build = partial(_build, platform=platform, secure=_secure(config, free_client, platform.now))
        program = build(config, client, metrics, monitor, share, elector=elector, watch=watch)
        await program.server.open()
        chosen = {"groups": list(config.groups), "versions": dict(config.versions), "observe": config.observe}
        log.info("mode", requested=requested.mode, mode=config.mode, **chosen)
        try:
            if (await _ended_before(stop, checks.check(free_client, config, now=platform.now))).cancelled():
                return
            async with running(program.parts.recorder.run(), monitor.run()):
                built()
                deadman = Deadman(monitor.away_s, lambda: share.at_work)
                election = nullcontext(True) if elector is None else platform.elected(elector, stop, deadman.look)
                await _sync_and_work(program, election, stop, synced)
        finally:
            await program.server.close()


def _client(
    connect: OpenClient,
    metrics: Metrics,
    credentials: Credentials,
    purpose: str = "",
    *,
    max_inflight: int | None = None,
) -> AbstractAsyncContextManager[ApiClient]:
    agent = f"{PROGRAM}/{version()} ({revision() or 'unknown'}) {purpose}".strip()
    return connect(credentials, user_agent=agent, instruments=metrics, max_inflight=max_inflight)


@asynccontextmanager
async def _lease_client(config: Config, metrics: Metrics, open_client: OpenClient) -> AsyncIterator[ApiClient]:
    """Open the client of the lease. It has its own credentials, because credentials belong to one loop."""
    credentials = await load_credentials(config.kubeconfig, config.context)
    async with _client(open_client, metrics, credentials, "lease") as client:
        yield client


def _build(
    config: Config,
    client: ApiClient,
    metrics: Metrics,
    monitor: LoopMonitor,
    share: LoopShare,
    *,
    platform: Platform,
    elector: LeaderElector | None,
    watch: SecondWriterWatch,
    secure: Secure | None,
) -> _Program:
    now, drop = platform.now, metrics.event_dropped
    identity = elector.identity if elector else new_identity()
    client.field_manager = writer_name(identity)
    recorder = EventRecorder(client, component=PROGRAM, now=now, count_drop=drop, instance=identity)
    strategy = RolloutStrategy(client, config.kubevirt_namespace)
    check, rollout = CacheCheck(client), lambda: strategy.rollout
    parts = Parts(config, client, metrics, recorder, now, check, share, rollout, platform.side_thread)
    assemblies, informers = assemble_kinds(parts, KINDS)
    parts.check.watch(informers)
    if elector is not None:
        elector.restores.on_restore = _on_this_loop(parts.check.restored)
    queues = [assembly.controller.queue for assembly in assemblies]
    optional = [each.owners for kind, each in zip(KINDS, assemblies, strict=True) if kind.is_optional]
    clock = asyncio.get_running_loop().time
    for assembly in assemblies:
        metrics.show_queue(assembly.controller.queue)
        if config.object_metrics:
            metrics.show_replicas(assembly.figures)
    if client.write_slots is not None:
        metrics.show_writes(client.write_slots)
    live = live_checks(monitor, informers, queues, clock)
    ready = ready_checks(informers, optional=optional, second_writer=watch.ready)
    server = HttpServer(
        health=config.health_probe_bind_address,
        metrics=config.metrics_bind_address,
        probes={"healthz": live, "livez": live, "readyz": ready},
        page=metrics.page,
        secure=secure,
        debug=debug_pages(assemblies, informers, recorder, clock) if config.debug_endpoints else None,
        admin=admin_routes() if config.debug_endpoints else (),
    )
    sample = WriterSample(
        client, identity, lambda: [(each.owners.resource, key) for each in assemblies for key in each.controller.recent]
    )
    return _Program(parts, informers, assemblies, optional, elector, strategy, watch, sample, server)


def _secure(config: Config, client: ApiClient, now: Callable[[], datetime]) -> Secure | None:
    if not config.metrics_secure:
        return None
    certificate: Certificate = SelfSignedCertificate(now)
    if config.metrics_cert_file:
        certificate = FileCertificate(config.metrics_cert_file, config.metrics_key_file)
    return Secure(certificate, Reviewer(client, clock=asyncio.get_running_loop().time).check)


def _gate(config: Config, elector: LeaderElector | None, watch: SecondWriterWatch) -> Gate:
    if config.observe:
        return forbid_writes
    if elector is None:
        return watch.gate

    def check() -> None:
        watch.gate()
        elector.check()

    return check


def _elector(
    config: Config, metrics: Metrics, platform: Platform, notes: Callable[[str], Mapping[str, str]]
) -> LeaderElector:
    return LeaderElector(
        partial(_lease_client, config, metrics, platform.open_client),
        namespace=config.leader_election_namespace,
        name=config.leader_election_id,
        identity=new_identity(),
        clock=platform.lease_clock,
        wall_clock=platform.now,
        report=_on_this_loop(partial(metrics.leading, config.leader_election_id)),
        lease_duration_s=config.lease_duration_s,
        renew_deadline_s=config.renew_deadline_s,
        retry_period_s=config.retry_period_s,
        notes=notes,
    )


def _on_this_loop(call: Callable[..., None]) -> Callable[..., object]:
    """Return a function that calls `call` soon on the running loop. Any thread may call the function."""
    return partial(asyncio.get_running_loop().call_soon_threadsafe, call)


async def _sync_and_work(
    program: _Program, election: AbstractAsyncContextManager[bool], stop: asyncio.Event, synced: Callable[[], None]
) -> None:
    await program.strategy.read()
    async with running(*(informer.run() for informer in program.informers), program.strategy.run()):
        if not await _synced(program, stop):
            return
        synced()
        tell = partial(announce, program.parts.recorder, program.parts.config)
        async with election as leading:
            if leading:
                async with running(program.watch.run(tell, program.sample), program.parts.check.run()):
                    has_finished = await _work(program, stop)
                if program.elector is not None and not has_finished:
                    program.elector.keep_lease()


async def _synced(program: _Program, stop: asyncio.Event) -> bool:
    """Return False if `stop` is set first. Raises Fatal if the lists are not complete within the configured timeout."""
    timeout_s = program.parts.config.sync_timeout_s
    try:
        async with asyncio.timeout(timeout_s):
            if (await _ended_before(stop, _all_synced(program))).cancelled():
                return False
    except TimeoutError as error:
        waiting = [
            f"{informer.resource.name}: {informer.waiting_for or 'the list is not complete'}"
            for informer in program.informers
            if not informer.synced.is_set()
        ]
        raise Fatal(f"the first lists did not arrive within {timeout_s:g}s ({'; '.join(waiting)})") from error
    objects = {informer.resource.plural: len(informer.store) for informer in program.informers}
    log.info("caches synced", **objects)
    return True


async def _all_synced(program: _Program) -> None:
    for informer in program.informers:
        while not (informer in program.optional and informer.missing):
            if await is_set_within(informer.synced, SYNC_POLL_S):
                break


async def _ended_before(stop: asyncio.Event, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Run `work`, and cancel `work` when `stop` is set. Return the task, which has ended or was cancelled."""
    async with asyncio.TaskGroup() as group:
        working = group.create_task(work, name="until-stopped")
        stopped = group.create_task(stop.wait(), name="stop")
        await asyncio.wait((working, stopped), return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        working.cancel()
    return working


async def _work(program: _Program, stop: asyncio.Event) -> bool:
    """Run all workers until `stop` is set, then wait for them and for the Events. Return True if none was cancelled."""
    config = program.parts.config
    log.info("observing" if config.observe else "working", controllers=[kind.name for kind in KINDS])
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(_run_workers(assembly.controller, stop), name=f"controller-{assembly.controller.name}")
            for assembly in program.assemblies
        ]
        for each in program.assemblies:
            group.create_task(asyncio.to_thread(each.report_invalid, each.owners.store.values()), name="invalid specs")
        await stop.wait()
        log.info("stopping", grace_s=config.shutdown_grace_s)
        for assembly in program.assemblies:
            assembly.controller.queue.shut_down()
        _, late = await asyncio.wait(tasks, timeout=config.shutdown_grace_s)
        for task in late:
            log.warning("a running pass did not finish within the shutdown grace", controller=task.get_name())
            task.cancel()
    await program.parts.recorder.flush(EVENTS_FLUSHED_WITHIN_S)
    return not late


async def _run_workers(controller: Controller, stop: asyncio.Event) -> None:
    """Run the workers. Raises ServiceEnded if they end early: a process without workers must not lead."""
    await controller.run()
    if not stop.is_set():
        raise ServiceEnded(f"the workers of {controller.name} returned")


def _freeze_program() -> None:
    """Exclude the program from garbage collection, and set how often Python collects garbage from now on.

    The first lists create millions of objects, and almost all of them stay. Each collection of the middle generation
    visits at most 200,000 new objects, in about 10 ms. Full collections are rare, because they visit all new objects.
    """
    gc.freeze()
    gc.set_threshold(20_000, 10, 500)


def _fatal(error: BaseException) -> Fatal:
    """Convert an error into a Fatal with one or more lines for the user. Log the traceback of an unexpected error."""
    lines: list[str] = []
    for leaf in leaf_errors(error):
        match leaf:
            case Fatal():
                lines += leaf.lines
            case StartupError():
                lines += map(str, leaf.problems)
            case ConfigurationError() | BindError() | ElectionImpossible() | LeaseLost() | SeveralLeases():
                lines.append(str(leaf))
            case _:
                log.error("unexpected failure", exc_info=leaf)
                lines.append(f"unexpected failure: {leaf!r}")
    return Fatal(*dict.fromkeys(lines))
