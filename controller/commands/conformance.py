"""`vmherd conformance`: checks the behaviours of replica sets and pools on a cluster, and prints a table.

It writes only in namespaces that it has created, and removes them at the end, also after Ctrl-C. One case also needs an
admission policy, which applies to its namespace alone.
"""

import asyncio
import signal
import sys
import uuid
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

import click

from conformance import report
from conformance.api import Api
from conformance.case import Case, Kind, Requirement, Result, Status
from conformance.catalogue import CASES, STORIES, select
from conformance.cluster import GROUPS as KIND_GROUPS
from conformance.cluster import Cluster, changes_running_vms, expands_claims, find_subject, serves, versions_of
from conformance.namespace import Conditions
from conformance.runner import Namespaces, Setup, find_reconcilers, run_cases
from controller.commands.command import CommandFailed, carry_out
from controller.config.modes import Mode
from controller.config.options import Command, Listed, Option, Switch, chosen, complain
from controller.config.settings import OPTIONS, Connection
from controller.config.types import FILE, GROUP, Integer, OneOf, Value
from controller.running import handling_signals
from controller.version import PROGRAM, version
from informers.errors import ApiError
from informers.http.client import ApiClient

FAILED: Final = 1
IMAGE: Final = "kubevirt/cirros-container-disk-demo:latest"
AGAIN_S: Final = 1.0


class Settings(Connection, frozen=True, kw_only=True):
    mode: str = Mode.AUTO.value
    replicaset_group: str = ""
    pool_group: str = ""
    kind: str = ""
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    stories: bool = False
    image: str = IMAGE
    timeout: float = 1.0
    parallel: int = 4
    keep: bool = False
    output: str = "table"
    report: str = ""
    list: bool = False


def _read_factor(text: str) -> float:
    try:
        factor = float(text)
    except ValueError:
        factor = 0.0
    if 0.01 <= factor <= 100:
        return factor
    raise ValueError("a factor from 0.01 to 100, such as 2")


FACTOR: Final = Value("factor", _read_factor, lambda factor: f"{factor:g}")
PATTERNS: Final = Value("pattern,...", lambda text: tuple(filter(None, text.split(","))))

LIST: Final = Switch("list", "print the cases as a table, and run none")

GROUPS: Final[Mapping[str, Sequence[Option]]] = {
    "The cluster": (
        OPTIONS["kubeconfig"],
        OPTIONS["context"],
        Option("mode", OPTIONS["mode"].type, "the mode of vmherd; the API groups follow from it", default=Mode.AUTO),
        Option("replicaset_group", GROUP, "the API group of the replica sets", unset="found by discovery"),
        Option("pool_group", GROUP, "the API group of the pools", unset="found by discovery"),
        Option("image", click.STRING, "the container disk that the VMs boot", default=IMAGE),
    ),
    "The cases": (
        Option("kind", OneOf(*Kind), "run only the cases of this kind", unset="both"),
        Listed("only", "run only cases that match: an id with *, or a rule", type=PATTERNS),
        Listed("skip", "do not run cases that match", type=PATTERNS, unset="none"),
        Switch("stories", "run only cases in which guests boot, disks are kept or VMs migrate: for a real cluster"),
        LIST,
        Option("timeout", FACTOR, "multiplies all time limits; use more than 1 for a slow cluster", default=1.0),
        Option("parallel", Integer(1, 100), "the number of cases that run at the same time", default=4),
        Switch("keep", "keep the namespaces of the cases"),
    ),
    "The report": (
        Option("output", OneOf(*report.FORMATS), "the format of the output", default="table", short="-o"),
        Option("report", FILE, "also write the report to this file: .json, .md, or .xml for JUnit", unset="no file"),
    ),
}


@click.command("conformance", cls=Command, params=(), groups=GROUPS)
@click.pass_context
def command(ctx: click.Context, /, **_: Any) -> int:
    """Check how a cluster reconciles replica sets and pools, with any controller, and print a table.

    Each case runs in a namespace of its own. The exit code is 1 if a case failed.
    """
    settings = Settings(**chosen(ctx))
    cases = _selected(settings)
    if settings.list:
        click.echo(report.catalogue(cases), nl=False)
        return 0
    if settings.report and Path(settings.report).suffix not in report.SUFFIXES:
        raise click.UsageError("--report needs a file name that ends with .json, .md or .xml")
    codes: list[int] = []

    async def work(client: ApiClient, settings: Settings) -> None:
        with cancelled_by_signals():
            codes.append(await run(client, settings, cases))

    try:
        carry_out(settings, work)
    except asyncio.CancelledError as error:
        raise KeyboardInterrupt from error
    return codes[0]


def _selected(settings: Settings) -> list[Case]:
    kind = Kind(settings.kind) if settings.kind else None
    try:
        among = select(CASES, only=STORIES) if settings.stories else CASES
        cases = select(among, kind=kind, only=settings.only, skip=settings.skip)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if not cases:
        raise click.UsageError("no case is left: see --list")
    return cases


def cancelled_by_signals() -> AbstractContextManager[None]:
    """Cancel the task at SIGINT or SIGTERM, and at a later Ctrl-C. Signals within `AGAIN_S` seconds count as one."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    first_at: list[float] = []

    def interrupt(number: signal.Signals) -> None:
        if not first_at:
            first_at.append(loop.time())
        elif number is not signal.SIGINT or loop.time() < first_at[0] + AGAIN_S:
            return
        if task is not None:
            task.cancel()

    return handling_signals(interrupt)


async def run(client: ApiClient, settings: Settings, cases: Sequence[Case]) -> int:
    """Run the cases, write the reports, and return the exit code. Raises CommandFailed, ApiError, CancelledError."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    api = Api(client)
    namespaces = Namespaces(api, uuid.uuid4().hex[:8], keep=settings.keep)
    setup = Setup(
        api=api, namespaces=namespaces, conditions=Conditions(image=settings.image, patience=settings.timeout)
    )
    try:
        cluster = await _examine(setup, settings, cases)
        results = await _run(setup, cluster, cases, settings)
    finally:
        await _tidy(namespaces, keep=settings.keep)
    seconds = loop.time() - began
    _write(settings, cluster, results, seconds)
    return FAILED if any(result.status is Status.FAILED for result in results) else 0


async def _examine(setup: Setup, settings: Settings, cases: Sequence[Case]) -> Cluster:
    """Find the kinds, their controllers and the optional features of the cluster. Raises CommandFailed, ApiError."""
    subjects = {}
    for kind in Kind:
        if any(case.kind is kind for case in cases):
            subject = await find_subject(setup.api, kind, _groups(settings, kind))
            if subject is not None:
                subjects[kind] = subject
    if not subjects:
        groups = ", ".join(group for kind in Kind for group in _groups(settings, kind))
        raise CommandFailed(f"the cluster serves none of the kinds in {groups}")
    reconcilers, simulated = await find_reconcilers(setup, Cluster(subjects=subjects))
    facts = {
        Requirement.SIMULATOR: simulated,
        Requirement.CDI: await serves(setup.api, "cdi.kubevirt.io/v1beta1", "datavolumes"),
        Requirement.EXPANSION: await expands_claims(setup.api),
        Requirement.LIVE: await changes_running_vms(setup.api),
    }
    has = frozenset(need for need in facts if facts[need])
    versions = {"suite": f"{PROGRAM} {version()}", **await versions_of(setup.api)}
    return Cluster(subjects=subjects, reconcilers=reconcilers, has=has, versions=versions)


def _groups(settings: Settings, kind: Kind) -> Sequence[str]:
    given = settings.replicaset_group if kind is Kind.SETS else settings.pool_group
    kubevirts, own = KIND_GROUPS[kind]
    if given:
        return (given,)
    if settings.mode == Mode.AUTO:
        return (own, kubevirts)
    return (own,) if settings.mode == Mode.ALONGSIDE else (kubevirts,)


async def _run(setup: Setup, cluster: Cluster, cases: Sequence[Case], settings: Settings) -> list[Result]:
    """Run the cases. A table shows each result at once, and the results so far after Ctrl-C. Raises CancelledError."""
    loop = asyncio.get_running_loop()
    stream, began, done = settings.output == "table", loop.time(), list[Result]()
    width = max(len(case.id) for case in cases)

    def show(result: Result) -> None:
        done.append(result)
        if stream:
            place = f"{len(done):>{len(str(len(cases)))}} of {len(cases)}  "
            print("\n".join(report.row(result, width, place)), flush=True)

    if stream:
        print("\n".join([*report.heading(cluster), ""]), flush=True)
    try:
        return await run_cases(setup, cluster, cases, parallel=settings.parallel, on_result=show)
    except asyncio.CancelledError:
        if stream:
            print(f"\ninterrupted before {len(cases) - len(done)} of {len(cases)} cases had a result")
            print(report.summary(done, loop.time() - began), flush=True)
        raise


async def _tidy(namespaces: Namespaces, *, keep: bool) -> None:
    find = f"kubectl get namespaces --selector {namespaces.selector}"
    if keep:
        print(f"the namespaces are kept: {find}", file=sys.stderr, flush=True)
        return
    try:
        left = await namespaces.remove_all()
    except ApiError as error:
        complain(f"the namespaces of this run cannot be removed: {error}; find them with: {find}")
        return
    except asyncio.CancelledError:
        complain(f"interrupted before all namespaces were removed; find them with: {find}")
        raise
    if left:
        complain(f"{len(left)} namespaces still terminate; find them with: {find}")


def _write(settings: Settings, cluster: Cluster, results: Sequence[Result], seconds: float) -> None:
    if settings.output == "table":
        print(f"\n{report.summary(results, seconds)}")
    else:
        print(report.render(settings.output, cluster, results, seconds), end="")
    if settings.report:
        path = Path(settings.report)
        try:
            path.write_text(report.render(report.SUFFIXES[path.suffix], cluster, results, seconds))
        except OSError as error:
            raise CommandFailed(f"{path} cannot be written: {error.strerror}") from error
