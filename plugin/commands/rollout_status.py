"""`kubectl vmherd rollout status`: shows a rollout until it is finished, has failed, or the time limit is reached."""

import asyncio
from contextlib import ExitStack
from datetime import datetime
from functools import partial
from typing import Final, NamedTuple

from controller.kinds import POOLS
from plugin.command import on_objects
from plugin.commands.watching import Picture, Screen, follow
from plugin.connection import Failed, Session
from plugin.flags import Flags
from plugin.members import Named, owners_of, parse_shown
from plugin.other_writer import KUBEVIRT_REPLACES_NONE, UNKNOWN, other_writer, warning_about_status
from plugin.printing import most_lines, notes_about_missing, print_answers, print_lines, width
from plugin.reading import Reader, Target
from plugin.views.listing import tree_lines
from plugin.views.rollout import Progress, State, behind_kubevirt, first_wait, progress_of
from plugin.views.situation import Situation

CHECK_S: Final = 30.0
"""The time between two checks whether KubeVirt's own controller works on a set that waits."""

TIMED_OUT: Final = "error: timed out waiting for the condition"
"""kubectl's words. The problem that the rollout waits for follows."""


class Look(NamedTuple):
    """A look at a rollout. `warning` says that the status is old, or is ""."""

    situation: Situation
    progress: Progress
    warning: str


class Rollout:
    """The rollout of one object. `problem` is what it waited for at the last look, or ""."""

    def __init__(self, session: Session, reader: Reader, target: Target, revision: int) -> None:
        self._session, self._reader, self._target, self._revision = session, reader, target, revision
        self._check_at, self._other_writer = 0.0, ""
        self.problem = ""

    async def look(self) -> Look:
        """If KubeVirt's own controller leaves VMIs of a set outdated, the situation says so. Raise ApiError."""
        self._target = await self._reader.again(self._target)
        situation = await self._reader.situation(self._target)
        if self._target.kind is POOLS or situation.updated >= situation.total:
            self._reader.missing.pop(UNKNOWN, None)
        elif evidence := await self._evidence():
            situation = behind_kubevirt(situation, f"{KUBEVIRT_REPLACES_NONE} ({evidence})")
        progress = progress_of(situation, pinned=self._revision)
        self.problem = progress.problem or first_wait(situation)
        return Look(situation, progress, await warning_about_status(self._session, self._reader, [self._target]))

    async def _evidence(self) -> str:
        """Return the evidence that KubeVirt's own controller works on the set, or "". The answer is kept for a time."""
        now = asyncio.get_running_loop().time()
        if now >= self._check_at:
            self._other_writer = await other_writer(self._session, self._target, self._reader.missing, certain=True)
            self._check_at = now + CHECK_S
        return self._other_writer


@on_objects("rollout status", parse=parse_shown)
async def command(session: Session, named: Named, watch: bool, timeout_s: float, revision: int) -> None:
    """Show the rollout of a new template until it is finished. The exit code is 1 if the rollout fails. vm/NAME stands
    for its owner.
    """
    reader, (subjects, _) = Reader(session, session.namespace), await owners_of(session, named)
    targets = await reader.some_targets(subjects, session.flags.selector)
    finished, rollouts = list[Progress](), [Rollout(session, reader, target, revision) for target in targets]
    each = rollouts[0]
    try:
        async with asyncio.timeout(timeout_s or None):
            for each in rollouts:
                with session.going_on():
                    finished.append(await _last_progress(each, session.flags, watch=watch))
                    if finished[-1].state is State.FAILED:
                        raise Failed(f"error: {finished[-1].message}")
    except TimeoutError as error:
        problem = each.problem
        raise Failed(f"{TIMED_OUT}: {problem}" if problem else TIMED_OUT) from error
    finally:
        notes_about_missing(reader.missing.values())
    print_answers(finished, session.flags.output)


async def _last_progress(rollout: Rollout, flags: Flags, *, watch: bool) -> Progress:
    with ExitStack() as stack:
        screen = Screen(stack, vanishes=True) if flags.is_text else None

        async def show(look: Look, silence: str) -> None:
            if screen is not None:
                await screen.show(Picture(partial(_lines, look, flags, live=screen.is_live), look.warning), silence)

        def is_last(look: Look) -> bool:
            return not watch or look.progress.state is not State.WAITING

        progress = (await follow(await rollout.look(), rollout.look, show, is_last=is_last)).progress
    if screen is not None and screen.is_live and progress.state is not State.FAILED:
        print_lines([progress.message])
    return progress


def _lines(look: Look, flags: Flags, now: datetime, *, live: bool) -> list[str]:
    if live:
        most = most_lines(live=True)
        return tree_lines(look.situation, look.situation.members, now, width=width(flags), most=most)
    return [look.progress.message] if look.progress.state is not State.FAILED else []
