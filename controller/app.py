"""The composition root: builds every object once, and nests their scopes. The nesting is the order of start and stop.

API client, lease client; the mode, where it follows from the cluster
└── HTTP server; startup checks
    └── event recorder, loop monitor, informers, until their first lists are in
        └── leadership
            └── workers, until told to stop: then those in hand finish, events go out, the lease is released
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from typing import Any, NamedTuple

import structlog
from prometheus_client import CollectorRegistry

from controller import logs
from controller.config.settings import Config
from controller.events.recorder import EventRecorder
from controller.kinds import KINDS
from controller.leaderelection.elector import ElectionImpossible, LeaderElector, LeaseLost, new_identity
from controller.metrics.registry import Metrics
from controller.preflight import checks
from controller.preflight.checks import StartupError
from controller.running import ServiceEnded, leaf_errors, running
from controller.runtime.controller import Controller
from controller.runtime.dry_run import forbid_writes
from controller.runtime.wiring import Assembly, Parts, assemble_kinds
from controller.server.authorization import Reviewer
from controller.server.certificates import Certificate, FileCertificate, SelfSignedCertificate
from controller.server.health import live_checks, ready_checks
from controller.server.http import BindError, HttpServer, Secure, describe_queues, describe_tasks
from controller.server.loop_lag import LoopMonitor
from controller.version import PROGRAM, revision, version
from informers.client import ApiClient, open_client
from informers.configuration import ConfigurationError, load_credentials
from informers.gate import Gate
from informers.informer import SharedInformer

log = structlog.get_logger()

EVENTS_FLUSHED_WITHIN_S = 5.0


class Fatal(Exception):
    """The program ends with a failure. Each of `lines` tells a person what was wrong."""

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


async def run(config: Config) -> int:
    """Reconcile until SIGTERM or SIGINT, then leave in order: 0. Raises Fatal."""
    logs.configure(config.log_level, config.log_format)
    stop = asyncio.Event()
    try:
        with _stopped_by_signals(stop):
            await _run(config, stop)
    except (Exception, ExceptionGroup) as error:
        raise _fatal(error) from error
    return 0


class _Program(NamedTuple):
    """Everything that runs, before it does."""

    parts: Parts
    informers: Sequence[SharedInformer[Any]]
    assemblies: Sequence[Assembly]
    monitor: LoopMonitor
    server: HttpServer


async def _run(asked: Config, stop: asyncio.Event) -> None:
    metrics = Metrics(CollectorRegistry(), version=version(), revision=revision())
    async with _clients(asked, metrics) as (client, lease_client, review_client):
        config = await _settled(lease_client, asked, stop)
        if config is None:
            return
        elector = _elector(config, lease_client, metrics) if config.elects else None
        client.gate = _gate(config, elector)
        program = _build(config, client, metrics, elector, _secure(config, review_client))
        await program.server.open()
        log.info("mode", asked=asked.mode, mode=config.mode, groups=list(config.groups), observe=config.observe)
        try:
            if not await _done_before(stop, checks.check(lease_client, config, now=utc_now)):
                return
            async with running(program.parts.recorder.run(), program.monitor.run()):
                await _follow_and_work(program, elector, stop)
        finally:
            await program.server.close()


async def _settled(client: ApiClient, config: Config, stop: asyncio.Event) -> Config | None:
    """The configuration with its mode, which may have to be looked up; None when told to stop before."""
    settled: list[Config] = []

    async def settle() -> None:
        settled.append(await checks.resolve_mode(client, config))

    return settled[0] if await _done_before(stop, settle()) else None


@asynccontextmanager
async def _clients(config: Config, metrics: Metrics) -> AsyncIterator[tuple[ApiClient, ApiClient, ApiClient]]:
    """The client for the work; one for the lease, which must not wait behind the work; and one for questions about
    those who read metrics, which nobody's work or lease may have to wait for, and no gate holds up.
    """
    credentials = await load_credentials(config.kubeconfig, config.context)
    agent = f"{PROGRAM}/{version()} ({revision() or 'unknown'})"
    async with (
        open_client(
            credentials,
            user_agent=agent,
            instruments=metrics,
            max_inflight=config.max_inflight,
            qps=config.kube_api_qps,
            burst=config.request_burst,
        ) as client,
        open_client(credentials, user_agent=f"{agent} lease", instruments=metrics, max_inflight=None) as lease_client,
        open_client(credentials, user_agent=f"{agent} metrics", instruments=metrics, max_inflight=None) as reviewer,
    ):
        yield client, lease_client, reviewer


def _build(
    config: Config, client: ApiClient, metrics: Metrics, elector: LeaderElector | None, secure: Secure | None
) -> _Program:
    identity = elector.identity if elector else new_identity()
    recorder = EventRecorder(client, component=PROGRAM, now=utc_now, instruments=metrics, instance=identity)
    parts = Parts(config, client, metrics, recorder, utc_now)
    assemblies, informers = assemble_kinds(parts, KINDS)
    queues = [assembly.controller.queue for assembly in assemblies]
    monitor = LoopMonitor(instruments=metrics)
    for assembly in assemblies:
        metrics.show_queue(assembly.controller.queue)
        if config.object_metrics:
            metrics.show_replicas(assembly.figures)
    clock = asyncio.get_running_loop().time
    debug = {"tasks": describe_tasks, "queues": lambda: describe_queues(queues, clock())}
    server = HttpServer(
        health=config.health_probe_bind_address,
        metrics=config.metrics_bind_address,
        live=live_checks(monitor, informers, queues, clock),
        ready=ready_checks(informers),
        page=metrics.page,
        secure=secure,
        debug=debug if config.debug_endpoints else None,
    )
    return _Program(parts, informers, assemblies, monitor, server)


def _secure(config: Config, client: ApiClient) -> Secure | None:
    """How the metrics are protected, if at all."""
    if not config.metrics_secure:
        return None
    certificate: Certificate = SelfSignedCertificate(utc_now)
    if config.metrics_cert_file:
        certificate = FileCertificate(config.metrics_cert_file, config.metrics_key_file)
    return Secure(certificate, Reviewer(client, clock=asyncio.get_running_loop().time).check)


def _gate(config: Config, elector: LeaderElector | None) -> Gate | None:
    """What every write has to get past."""
    if config.observe:
        return forbid_writes
    return elector.check if elector is not None else None


def _elector(config: Config, client: ApiClient, metrics: Metrics) -> LeaderElector:
    return LeaderElector(
        client,
        namespace=config.leader_election_namespace,
        name=config.leader_election_id,
        identity=new_identity(),
        wall_clock=utc_now,
        instruments=metrics,
        lease_duration_s=config.lease_duration_s,
        renew_deadline_s=config.renew_deadline_s,
        retry_period_s=config.retry_period_s,
    )


async def _follow_and_work(program: _Program, elector: LeaderElector | None, stop: asyncio.Event) -> None:
    async with running(*(informer.run() for informer in program.informers)):
        if not await _synced(program, stop):
            return
        _spare_the_collector()
        if elector is None:
            await _work(program, stop)
            return
        async with elector.elected(stop) as leading:
            if leading:
                await _work(program, stop)


async def _synced(program: _Program, stop: asyncio.Event) -> bool:
    """Wait for the first lists. False when told to stop before. Raises Fatal when they take too long."""
    patience_s = program.parts.config.sync_timeout_s
    try:
        async with asyncio.timeout(patience_s):
            if not await _done_before(stop, _all_synced(program.informers)):
                return False
    except TimeoutError as error:
        waiting = [
            f"{informer.resource.name}: {informer.waiting_for or 'the list is not complete'}"
            for informer in program.informers
            if not informer.synced.is_set()
        ]
        raise Fatal(f"the first lists did not arrive within {patience_s:g}s ({'; '.join(waiting)})") from error
    objects = {informer.resource.plural: len(informer.store) for informer in program.informers}
    log.info("caches synced", **objects)
    return True


async def _all_synced(informers: Sequence[SharedInformer[Any]]) -> None:
    for informer in informers:
        await informer.synced.wait()


async def _done_before(stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
    """Do the work, unless told to stop before it is done: then it is cancelled. Return whether it was done."""
    async with asyncio.TaskGroup() as group:
        doing = group.create_task(work, name="until-stopped")
        told = group.create_task(stop.wait(), name="stop")
        await asyncio.wait((doing, told), return_when=asyncio.FIRST_COMPLETED)
        told.cancel()
        doing.cancel()
    return not doing.cancelled()


async def _work(program: _Program, stop: asyncio.Event) -> None:
    """Run all workers until told to stop; let those in hand finish, so long as the grace lasts; send what was said."""
    config = program.parts.config
    names = [assembly.controller.name for assembly in program.assemblies]
    log.info("observing" if config.observe else "working", controllers=names)
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(_run_workers(assembly.controller, stop), name=f"controller-{assembly.controller.name}")
            for assembly in program.assemblies
        ]
        await stop.wait()
        log.info("stopping", grace_s=config.shutdown_grace_s)
        for assembly in program.assemblies:
            assembly.controller.queue.shut_down()
        _, late = await asyncio.wait(tasks, timeout=config.shutdown_grace_s)
        for task in late:
            log.warning("work in hand did not finish in time", controller=task.get_name())
            task.cancel()
    await program.parts.recorder.flush(EVENTS_FLUSHED_WITHIN_S)


async def _run_workers(controller: Controller, stop: asyncio.Event) -> None:
    """A leader whose workers have left does nothing, and keeps everybody else from doing it: better to start anew."""
    await controller.run()
    if not stop.is_set():
        raise ServiceEnded(f"the workers of {controller.name} returned")


@contextmanager
def _stopped_by_signals(stop: asyncio.Event) -> Iterator[None]:
    """SIGTERM and SIGINT ask for an orderly end; the second of them does not wait for it."""

    def asked() -> None:
        if stop.is_set():
            log.warning("told to stop once more, leaving at once")
            os._exit(1)
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked)
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


def _spare_the_collector() -> None:
    """What the first lists brought stays, and holds no cycles: looking through it again and again blocks the loop."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 50, 100)


def _fatal(error: BaseException) -> Fatal:
    """What a person should read of a failure; whatever nobody foresaw is logged with its traceback."""
    lines: list[str] = []
    for leaf in leaf_errors(error):
        match leaf:
            case Fatal():
                lines += leaf.lines
            case StartupError():
                lines += map(str, leaf.problems)
            case ConfigurationError() | BindError() | ElectionImpossible() | LeaseLost():
                lines.append(str(leaf))
            case _:
                log.error("unexpected failure", exc_info=leaf)
                lines.append(f"unexpected failure: {leaf!r}")
    return Fatal(*dict.fromkeys(lines))


def utc_now() -> datetime:
    return datetime.now(UTC)  # noqa: TID251 - the wall clock enters here, and is handed on
