"""`kubectl vmherd rollout status`: shows a rollout until it is finished, has failed, or the time limit is reached."""

import asyncio
from contextlib import ExitStack
from typing import Final

from controller.kinds import POOLS
from informers.errors import ServerError, TooManyRequests, TransportError
from plugin import printing
from plugin.command import Subjects, on_objects
from plugin.connection import Failed, Session
from plugin.flags import NAME, Flags
from plugin.other_writer import KUBEVIRT_REPLACES_NONE, UNKNOWN, other_writer
from plugin.printing import note, notes_about_missing, print_answers, print_lines
from plugin.reading import Reader, Target
from plugin.views.rollout import Progress, State, behind_kubevirt, first_wait, live_line, progress_of
from plugin.views.situation import Situation

INTERVAL_S: Final = 1.0
OUTAGE_S: Final = 30.0
"""The longest time without an answer of the server before a watch fails."""

CHECK_S: Final = 30.0
"""The time between two checks whether KubeVirt's own controller works on a set that waits."""

TIMED_OUT: Final = "error: timed out waiting for the condition"
"""kubectl's words. The problem that the rollout waits for follows."""


class Display:
    def show(self, situation: Situation, progress: Progress, seconds: float) -> None:
        """Show a look at the object. `seconds` is the time since the first look."""


class Lines(Display):
    def __init__(self) -> None:
        self._last = ""

    def show(self, situation: Situation, progress: Progress, seconds: float) -> None:
        if progress.state is not State.FAILED and progress.message != self._last:
            print_lines([progress.message])
        self._last = progress.message


class Live(Display):
    def __init__(self, stack: ExitStack) -> None:
        from rich.console import Console  # noqa: PLC0415  only a terminal needs it
        from rich.live import Live as Area  # noqa: PLC0415

        console = Console(highlight=False, force_terminal=True)
        self._area = stack.enter_context(Area(console=console, auto_refresh=False, transient=True))

    def show(self, situation: Situation, progress: Progress, seconds: float) -> None:
        from rich.text import Text  # noqa: PLC0415

        self._area.update(Text(live_line(situation, seconds), no_wrap=True, overflow="ellipsis"), refresh=True)


class Watch:
    """Looks at one object again and again. `problem` is what the rollout waited for at the last look, or ""."""

    def __init__(self, session: Session, reader: Reader, target: Target) -> None:
        self._session = session
        self._reader = reader
        self._target = target
        self._check_at = 0.0
        self.problem = ""
        self._other_writer = ""

    async def look(self) -> Situation:
        """If KubeVirt's own controller leaves VMIs of a set outdated, the situation says so. Raise ApiError."""
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


@on_objects(
    "rollout status",
    "Show the rollout of a new template until it is finished. The exit code is 1 if the rollout fails.",
)
async def command(session: Session, subjects: Subjects, watch: bool, timeout_s: float, revision: int) -> None:
    """Show each rollout, one after the other. Raise Failed if a rollout fails. Raise ApiError if a request fails."""
    reader = Reader(session, session.namespace)
    targets = await reader.some_targets(subjects, session.flags.selector)
    finished, looks = [], [Watch(session, reader, target) for target in targets]
    try:
        async with asyncio.timeout(timeout_s or None):
            for each in looks:
                finished.append(await _follow(each, session.flags, revision, watch=watch))
    except TimeoutError as error:
        problem = looks[len(finished)].problem
        raise Failed(f"{TIMED_OUT}: {problem}" if problem else TIMED_OUT) from error
    finally:
        notes_about_missing(reader.missing.values())
    _print_results(session.flags, finished)


async def _follow(target: Watch, flags: Flags, revision: int, *, watch: bool) -> Progress:
    """Show one rollout until it ends. Without `watch`, look once. Raise Failed if the rollout fails."""
    with ExitStack() as stack:
        display = _display(stack, flags, watch=watch)
        progress = await _last_progress(target, display, revision, watch=watch)
    if progress.state is State.FAILED:
        if flags.output:
            _print_results(flags, [progress])
        raise Failed(f"error: {progress.message}")
    if isinstance(display, Live):
        print_lines([progress.message])
    return progress


async def _last_progress(target: Watch, display: Display, revision: int, *, watch: bool) -> Progress:
    loop = asyncio.get_running_loop()
    started = loop.time()
    situation = await target.look()
    while True:
        progress = progress_of(situation, pinned=revision)
        target.problem = progress.problem or first_wait(situation)
        display.show(situation, progress, loop.time() - started)
        if progress.state is not State.WAITING or not watch:
            return progress
        situation = await target.look_again()


def _display(stack: ExitStack, flags: Flags, *, watch: bool) -> Display:
    if flags.output:
        return Display()
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
    else:
        print_answers(finished, flags.output)
