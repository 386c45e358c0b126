"""Leader election: of several processes, only one works, and the other processes (standbys) wait to replace it.

async with elector.elected(stop) as leading:
        if leading:
            await work_until(stop)

Deadline: the block is cancelled if the lease is lost. This happens at most `renew_deadline_s` after the start of the
last successful renewal. After this deadline, other processes wait for another `lease_duration_s - renew_deadline_s`
seconds before they take the lease. In this time, the cancelled block has to end its work.

Gate: cancellation alone is not safe. The operating system can stop a process at any line and continue it later.
Therefore call `check` directly before every write. `check` compares the clock with the deadline. Any thread may call
it. The elector never reads the timestamps in the lease (see `controller.leaderelection.lease`). The clock goes on while
the machine sleeps, because the clocks of the standbys go on too. The timers of the loop do not.

Thread: `controller.leaderelection.own_thread` runs the elector on a loop of its own. So a main loop that does not
answer for some seconds keeps the lease.

Release: the lease is released if the block ends without an exception and has not called `keep_lease`. A standby reads
the lease at least once in `retry_period_s`, and takes the released lease. If the block fails or is cancelled, requests
may still be in flight. So the lease is then not released, and a standby has to wait until the lease expires.

Known limit: a user may delete the lease of a working leader. The leader then creates the lease again at its next
renewal. A standby that read the lease before its deletion waits for the rest of the lease duration. But a process may
start between the deletion and this renewal. Such a process finds no lease, and becomes leader too. The old leader
notices the new leader at its next renewal and stops.
"""

import asyncio
import socket
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from random import random  # noqa: TID251 - used for jitter; tests pass another function

import structlog

from controller.config.settings import RETRY_JITTER
from controller.leaderelection.lease import (
    LEASES,
    Create,
    Lease,
    LeaseSpec,
    Observed,
    Renew,
    RestoreDetector,
    Take,
    Wait,
    change_body,
    claim,
    creation_body,
    decide,
    observe,
    release,
)
from controller.running import is_set_within, running
from controller.runtime.execute.requests import Requests
from informers.errors import AlreadyExists, ApiError, Conflict, Forbidden, GateClosed, Invalid, NotFound
from informers.objects import PatchType
from informers.resource import UNDECODABLE

log = structlog.get_logger()

MIN_PAUSE_S = 0.05
"""The shortest pause between two requests for the lease, against a busy loop when the lease expires."""

FORBIDDEN_S = 30.0
"""The election fails after only 403 for this time: a starting API server may answer so, too."""

ATTEMPT_SHARE = 0.3
"""The timeout of one renewal, as a share of the renew deadline: after one that hangs, two more fit."""

SHORTEST_ATTEMPT_S = 1.0
"""The shortest timeout of an attempt, in seconds. But the timeout is never longer than half of the renew deadline."""

NEVER = float("-inf")
"""The deadline of a process that does not hold the lease. It is always in the past."""

FAILURES = (ApiError, TimeoutError, *UNDECODABLE)
"""If a request raises one of these exceptions, the same request may succeed later."""


class NotLeader(GateClosed):
    """The write is refused, because this process may have lost the lease."""

    def __init__(self) -> None:
        super().__init__("not sent: this process does not hold the lease")


class LeaseLost(Exception):
    """The lease was not renewed in time or has another holder, so the work was cancelled."""


class ElectionImpossible(Exception):
    """No retry can succeed: a permission or the namespace is missing, or the lease is invalid."""


def new_identity() -> str:
    """Return a unique name for this process. Its first part is the host name, which shows where the process runs."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"


class LeaderElector:
    """Acquires, renews and releases one lease for this process. All times are in seconds, on `clock`."""

    def __init__(
        self,
        connect: Callable[[], AbstractAsyncContextManager[Requests]],
        *,
        namespace: str,
        name: str,
        identity: str,
        clock: Callable[[], float],
        wall_clock: Callable[[], datetime],
        report: Callable[[bool], object],
        lease_duration_s: float = 15.0,
        renew_deadline_s: float = 10.0,
        retry_period_s: float = 2.0,
        chance: Callable[[], float] = random,
        note: Callable[[str], str] = lambda _inherited: "",
        settings: str = "",
    ) -> None:
        """`connect` opens a client for the lease alone, so that other requests do not delay a renewal. `elected` calls
        it, because a client belongs to one loop. `clock` goes on during a callback, and while the machine sleeps.

        `note` returns the text for the annotation `QUARANTINE`. Its argument is the text of the last leader if this
        process takes the lease, and else "". `settings` is the text for the annotation `SETTINGS`. `wall_clock` returns
        the times that are written to the lease. Only users read these times, and no decision depends on them. `report`
        is called at the creation and at each change, with True if this process holds the lease. `chance` returns a
        random number from 0 to 1. This number varies the pauses between requests.
        """
        if not lease_duration_s > renew_deadline_s > retry_period_s * RETRY_JITTER > 0:
            raise ValueError(f"required: lease_duration_s > renew_deadline_s > {RETRY_JITTER} * retry_period_s > 0")
        self._connect = connect
        self._client: Requests
        self._namespace = namespace
        self._name = name
        self.identity = identity
        self._now = clock
        self._wall_clock = wall_clock
        self._report = report
        self._lease_duration_s = lease_duration_s
        self._renew_deadline_s = renew_deadline_s
        self._retry_period_s = retry_period_s
        self._chance = chance
        self._note = note
        self._settings = settings

        self._attempt_s = min(max(renew_deadline_s * ATTEMPT_SHARE, SHORTEST_ATTEMPT_S), renew_deadline_s / 2)

        self.restores = RestoreDetector(name)
        self._observed: Observed | None = None
        self._leading_until = NEVER
        """The start of the last successful write of the lease plus `renew_deadline_s`, or NEVER."""

        self._failing, self._releases = False, True
        self._forbidden_since: float | None = None

        report(False)

    @property
    def is_leader(self) -> bool:
        """Return True if this process holds the lease and the renew deadline has not passed."""
        return self._now() < self._leading_until

    @property
    def holder(self) -> str:
        """Return the identity of the last known holder, or "" if there is none."""
        return self._observed.holder if self._observed else ""

    def _left_s(self) -> float:
        return max(self._leading_until - self._now(), 0.0)

    def check(self) -> None:
        """Raise NotLeader if this process may have lost the lease. Call this method directly before each write."""
        if not self.is_leader:
            raise NotLeader

    @asynccontextmanager
    async def elected(self, stop: asyncio.Event) -> AsyncIterator[bool]:
        """Wait until this process holds the lease, and yield True. Yield False if `stop` is set first.

        Raises ElectionImpossible. If the lease is lost, cancels the block and raises LeaseLost. An exception of the
        block is raised inside an ExceptionGroup.
        """
        async with self._connect() as self._client:
            if not await self._acquire(stop):
                yield False
                return
            self._report(True)
            log.info("became leader", lease=self._name, identity=self.identity)
            try:
                async with asyncio.timeout(self._left_s()) as term, running(self._keep_renewing(term)):
                    yield True
            except (TimeoutError, ExceptionGroup) as error:
                if term.expired():
                    raise LeaseLost(self._loss_message()) from error
                raise
            finally:
                self._leading_until = NEVER
                self._report(False)
            if self._releases:
                await self._release()

    def keep_lease(self) -> None:
        """Let the lease expire at the end of the block of `elected`, instead of releasing it.

        The API server may still carry out cancelled requests. A new leader must not begin while this is possible.
        """
        self._releases = False

    async def _acquire(self, stop: asyncio.Event) -> bool:
        """Wait for the lease. Return True if this process holds it. Return False if `stop` is set first."""
        while not stop.is_set():
            if await self._try_to_acquire():
                if not stop.is_set():
                    return True
                self._leading_until = NEVER
                await self._release()
            elif await is_set_within(stop, self._standby_pause_s()):
                break
        return False

    async def _try_to_acquire(self) -> bool:
        """Read the lease, and take the lease if it is free. Return True if this process then holds the lease."""
        try:
            async with asyncio.timeout(self._renew_deadline_s / 2):
                await self._read()
                ours = await self._apply_decision()
        except Forbidden as error:
            now = self._now()
            self._forbidden_since = self._forbidden_since or now
            if now - self._forbidden_since < FORBIDDEN_S:
                self._log_failure("not allowed to use the lease", error)
                return False
            raise ElectionImpossible(
                f"not allowed to use the lease {self._name} in namespace {self._namespace}: {error};"
                " a Role there needs the verbs create, get and patch for leases.coordination.k8s.io"
            ) from error
        except Invalid as error:
            raise ElectionImpossible(f"the API server rejects the lease as invalid: {error}") from error
        except NotFound as error:
            if self._observed is not None and self._observed.lease is None:
                raise ElectionImpossible(f"cannot create the lease {self._name}: {error}") from error
            return False  # the lease was deleted after our read
        except (Conflict, AlreadyExists):
            return False  # another process was faster
        except FAILURES as error:
            self._log_failure("cannot read or write the lease", error)
            return False
        self._failing, self._forbidden_since = False, None
        return ours

    def _standby_pause_s(self) -> float:
        """Return at most 0.9 retry periods, so that a standby takes a released lease within one."""
        pause_s = self._retry_period_s * (0.5 + 0.4 * self._chance())
        left_s = self._observed.held_until - self._now() if self._observed else 0.0
        return min(pause_s, max(left_s, MIN_PAUSE_S)) if left_s > 0 else pause_s

    async def _keep_renewing(self, term: asyncio.Timeout) -> None:
        """Renew the lease until cancelled, and move the timeout `term` at each success.

        A failed attempt shortens the next pause. So after an attempt that hangs, the next one follows at once.
        """
        failed_s = 0.0
        while True:
            pause_s = self._retry_period_s * (1 + (RETRY_JITTER - 1) * self._chance())
            await asyncio.sleep(max(pause_s - failed_s, MIN_PAUSE_S))
            started, failed_s = self._now(), 0.0
            try:
                if not await self._renew():
                    self._leading_until = NEVER
            except FAILURES as error:
                self._log_failure("cannot renew the lease", error)
                failed_s = self._now() - started
            else:
                self._failing = False
            if not term.expired():  # a timeout that has expired has already cancelled the work
                term.reschedule(asyncio.get_running_loop().time() + self._left_s())

    async def _renew(self) -> bool:
        """Renew the lease once. Return False if the lease is lost. Raise one of FAILURES if the result is not known."""
        left_s = self._leading_until - self._now()
        if left_s <= 0:
            return False  # the operating system stopped the process for too long, so the last read is outdated
        async with asyncio.timeout(min(self._attempt_s, left_s)):
            try:
                return await self._apply_decision()
            except (Conflict, NotFound, AlreadyExists):
                # Another client changed or deleted the lease, or the answer to an earlier renewal did not arrive.
                await self._read()
                return self.holder == self.identity and await self._apply_decision()

    def _loss_message(self) -> str:
        lease = f"the lease {self._namespace}/{self._name}"
        if self.holder in (self.identity, ""):
            return f"{lease} could not be renewed for {self._renew_deadline_s:g}s"
        return f"{lease} is held by {self.holder}"

    async def _release(self) -> None:
        """Release the lease for a standby. Give up after half of the renew deadline: then it expires later."""
        try:
            async with asyncio.timeout(self._renew_deadline_s / 2):
                while self._observed is not None and self._observed.lease and self.holder == self.identity:
                    try:
                        await self._write(self._observed.lease, release(now=self._wall_clock()))
                    except Conflict:
                        await self._read()  # a renewal that was in flight has changed the lease
                    else:
                        log.info("released the lease", lease=self._name)
        except FAILURES as error:
            self._log_failure("cannot release the lease", error)

    async def _apply_decision(self) -> bool:
        """Write the lease, unless another process is its last known holder. Return whether this process holds it."""
        if self._observed is None:
            return False
        started = self._now()
        decision = decide(self._observed, identity=self.identity, now=started)
        if isinstance(decision, Wait):
            return False
        spec = claim(decision, identity=self.identity, duration_s=self._lease_duration_s, now=self._wall_clock())
        match decision:
            case Create():
                body = creation_body(self._namespace, self._name, spec)
                answer = await self._client.request("POST", LEASES.path(self._namespace), body=body)
                self._observe(LEASES.decode(answer))
            case Renew(lease) | Take(lease):
                await self._write(lease, spec, self._note(lease.note if isinstance(decision, Take) else ""))
        # The deadline counts from the time before the request. Standbys see the write later, so the lease expires later
        # for them.
        self._leading_until = started + self._renew_deadline_s
        return True

    async def _write(self, lease: Lease, spec: LeaseSpec, note: str | None = None) -> None:
        path = LEASES.path(self._namespace, self._name)
        body = change_body(lease, spec, note, self._settings if note is not None else "")
        answer = await self._client.request("PATCH", path, body=body, content_type=PatchType.MERGE.value)
        self._observe(LEASES.decode(answer))

    async def _read(self) -> None:
        try:
            answer = await self._client.request("GET", LEASES.path(self._namespace, self._name))
        except NotFound:
            self._observe(None)
        else:
            self._observe(LEASES.decode(answer))

    def _observe(self, lease: Lease | None) -> None:
        """Remember the lease after a read or a write. `lease` is None if the lease does not exist."""
        self.restores.note(lease)
        before, now = self.holder, self._now()
        self._observed = observe(self._observed, lease, now=now, usual_duration_s=self._lease_duration_s)
        if self.holder not in (before, self.identity, ""):
            log.info("another process leads", lease=self._name, holder=self.holder)

    def _log_failure(self, event: str, error: BaseException) -> None:
        """Log the first failure as a warning, and further failures directly after it at level debug."""
        emit = log.debug if self._failing else log.warning
        emit(event, lease=self._name, error=str(error) or type(error).__name__)
        self._failing = True
