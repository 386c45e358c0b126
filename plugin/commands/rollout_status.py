"""`kubectl vmherd rollout status`: shows a rollout until it is finished, has failed, or the time limit is reached."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from typing import Any, Final, Protocol

import click
from msgspec import Struct

from controller.kinds import POOLS
from informers.errors import ServerError, TooManyRequests, TransportError
from plugin import printing
from plugin.connection import Failed, Session, carry_out
from plugin.flags import NAME, Flags, Verb, flags_of
from plugin.other_writer import KUBEVIRT_REPLACES_NONE, UNKNOWN, other_writer
from plugin.printing import note, notes_about_missing, print_lines, print_value
from plugin.reading import Reader, Target
from plugin.subjects import METAVAR, Subject, parse_subjects
from plugin.verbs import FLAGS
from plugin.views.rollout import Progress, State, behind_kubevirt, live_line, progress_of
from plugin.views.situation import Situation

INTERVAL_S: Final = 1.0
"""The pause between two reads."""

OUTAGE_S: Final = 30.0
"""The longest time without an answer of the server before a watch fails."""

CHECK_S: Final = 30.0
"""The time between two checks whether KubeVirt's own controller works on a set that waits."""

TIMED_OUT: Final = "error: timed out waiting for the condition"


class Watching(Struct, frozen=True):
    """How long a command watches. `timeout_s` is 0 for no limit, and `revision` is 0 for any revision."""

    watch: bool
    timeout_s: float
    revision: int


class Display(Protocol):
    def show(self, situation: Situation, progress: Progress, seconds: float) -> None: ...


class Lines:
    """Prints one line for each change."""

    def __init__(self) -> None:
        self._last = ""

    def show(self, situation: Situation, progress: Progress, seconds: float) -> None:
        if progress.state is not State.FAILED and progress.message != self._last:
            print_lines([progress.message])
        self._last = progress.message


class Silent:
    """Prints nothing during the rollout. At the end, the command prints one document."""

    def show(self, situation: Situation, progress: Progress, seconds: float) -> None:
        pass


class Live:
    """Shows one line on a terminal. Each new state of the rollout overwrites this line."""

    def __init__(self, stack: ExitStack) -> None:
        from rich.console import Console  # noqa: PLC0415  only a terminal needs it
        from rich.live import Live as Area  # noqa: PLC0415

        console = Console(highlight=False, force_terminal=True)
        self._area = stack.enter_context(Area(console=console, auto_refresh=False, transient=True))

    def show(self, situation: Situation, progress: Progress, seconds: float) -> None:
        from rich.text import Text  # noqa: PLC0415

        self._area.update(Text(live_line(situation, seconds), no_wrap=True, overflow="ellipsis"), refresh=True)


class Watch:
    """Looks at one object again and again."""

    def __init__(self, session: Session, reader: Reader, target: Target) -> None:
        self._session = session
        self._reader = reader
        self._target = target
        self._check_at = 0.0
        self._other_writer = ""

    async def look(self) -> Situation:
        """Return the situation of the object. If KubeVirt's own controller leaves VMIs of a set outdated, the situation
        says so. Raise ApiError.
        """
        situation = await self._reader.situation(self._target)
        if self._target.kind is POOLS or situation.updated >= situation.total:
            self._reader.missing.pop(UNKNOWN, None)
            return situation
        evidence = await self._evidence()
        return behind_kubevirt(situation, f"{KUBEVIRT_REPLACES_NONE} ({evidence})") if evidence else situation

    async def _evidence(self) -> str:
        """Return the evidence that KubeVirt's own controller works on the set, or "". The answer is kept for a time."""
        now = asyncio.get_running_loop().time()
        if now >= self._check_at:
            self._other_writer = await other_writer(self._session, self._target, self._reader.missing, certain=True)
            self._check_at = now + CHECK_S
        return self._other_writer

    async def look_again(self) -> Situation:
        """Read the object and look again after a pause. A server that is away for a short time does not end the watch.

        Raise ApiError if the server is away for `OUTAGE_S`, or if another request fails.
        """
        loop = asyncio.get_running_loop()
        deadline, warned = loop.time() + OUTAGE_S, False
        while True:
            await asyncio.sleep(INTERVAL_S)
            try:
                self._target = await self._reader.again(self._target)
                return await self.look()
            except (TransportError, ServerError, TooManyRequests) as error:
                if loop.time() >= deadline:
                    raise
                if not warned:
                    note(f"Warning: {error}; trying again for {OUTAGE_S:.0f} seconds")
                warned = True


@click.command(
    "status",
    cls=Verb,
    own=FLAGS["rollout status"],
    help="Show the rollout of a new template until it is finished. The exit code is 1 if the rollout fails.",
)
@click.argument("arguments", nargs=-1, metavar=METAVAR)
def command(arguments: tuple[str, ...], watch: bool, timeout_s: float, revision: int, **values: Any) -> None:
    subjects, flags = parse_subjects(arguments), flags_of(values)
    watching = Watching(watch, timeout_s, revision)
    carry_out(flags, lambda session: run(session, subjects, watching))


async def run(session: Session, subjects: tuple[Subject, ...], watching: Watching) -> None:
    """Show each rollout, one after the other. Raise Failed if a rollout fails. Raise ApiError if a request fails."""
    reader = Reader(session, session.namespace)
    targets = await reader.some_targets(subjects, session.flags.selector)
    finished = []
    try:
        async with asyncio.timeout(watching.timeout_s or None):
            for target in targets:
                finished.append(await _follow(Watch(session, reader, target), watching, session.flags))
    except TimeoutError as error:
        raise Failed(TIMED_OUT) from error
    finally:
        notes_about_missing(reader.missing.values())
    _print_results(session.flags, finished)


async def _follow(watch: Watch, watching: Watching, flags: Flags) -> Progress:
    """Show one rollout until it ends. Without `watch`, look once. Raise Failed if the rollout fails."""
    with ExitStack() as stack:
        display = _display(stack, flags, watch=watching.watch)
        progress = await _last_progress(watch, watching, display)
    if progress.state is State.FAILED:
        if flags.output:
            _print_results(flags, [progress])
        raise Failed(f"error: {progress.message}")
    if isinstance(display, Live):
        print_lines([progress.message])
    return progress


async def _last_progress(watch: Watch, watching: Watching, display: Display) -> Progress:
    loop = asyncio.get_running_loop()
    started = loop.time()
    situation = await watch.look()
    while True:
        progress = progress_of(situation, pinned=watching.revision)
        display.show(situation, progress, loop.time() - started)
        if progress.state is not State.WAITING or not watching.watch:
            return progress
        situation = await watch.look_again()


def _display(stack: ExitStack, flags: Flags, *, watch: bool) -> Display:
    if flags.output:
        return Silent()
    if watch and printing.is_terminal():
        try:
            return Live(stack)
        except ImportError:
            note("Note: for a live line, install rich: pip install 'vmherd[cli]'")
    return Lines()


def _print_results(flags: Flags, finished: list[Progress]) -> None:
    if flags.output == NAME:
        for each in finished:
            print(each.name)
    elif flags.output:
        print_value(finished[0] if len(finished) == 1 else finished, flags.output)
