"""Leader election: of several processes, only one works, and the other processes (standbys) wait to replace it.

    async with elector.elected(stop) as leading:
        if leading:
            await work_until(stop)

Deadline: the block is cancelled if the lease is lost, at most `renew_deadline_s` after the start of the last successful
renewal. It has to end before others take the lease, `lease_duration_s - renew_deadline_s` seconds later.

Gate: the operating system can stop a process at any line, so call `check` directly before every write, in any thread.
It compares the deadline with a clock that goes on while the machine sleeps, as the clocks of the standbys do. The
timers of the loop do not.

Thread: `own_thread` runs the elector on a loop of its own, so a main loop that is busy for seconds keeps the lease.

Release: the lease is released if the block ends without an exception and has not called `keep_lease`. A standby reads
it at least once in `retry_period_s`. After a failure, requests may be in flight, so the lease expires instead.

Known limit: if a user deletes the lease of a working leader, a process that starts before the next renewal finds no
lease and becomes leader too. The old leader stops at its next renewal.
"""

import asyncio
import socket
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from random import random  # noqa: TID251 - used for jitter; tests pass another function

import structlog

from controller.config.settings import RETRY_JITTER
from controller.leaderelection.lease import (
    LEASES,
    NO_NOTES,
    Lease,
    LeaseSpec,
    Observed,
    RestoreDetector,
    change_body,
    claim,
    creation_body,
    may_write,
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
        notes: Callable[[str], Mapping[str, str]] = lambda _inherited: {},
    ) -> None:
        """`connect` opens a client for the lease alone, on the loop of `elected`: other requests must not delay a
        renewal.

        `notes` returns the annotations of the lease. Its argument is the last leader's quarantine in a takeover, or "".

        `wall_clock` gives the times in the lease for users. `report` gets True when this process gets the lease, and
        False. `chance` returns a number from 0 to 1, which varies the pauses.
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
        self._notes = notes

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
        """Wait for the lease, and yield True, or False if `stop` is set first. Raises ElectionImpossible, LeaseLost."""
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
        """Let the lease expire after the block of `elected`: the API server may still carry out cancelled requests."""
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
                ours = await self._write_if_free()
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
        """Renew the lease until cancelled, and move the timeout `term`. A failed attempt shortens the next pause."""
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
                return await self._write_if_free()
            except (Conflict, NotFound, AlreadyExists):
                # Another client changed or deleted the lease, or the answer to an earlier renewal did not arrive.
                await self._read()
                return self.holder == self.identity and await self._write_if_free()

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

    async def _write_if_free(self) -> bool:
        """Write the lease, unless another process is its last known holder. Return whether this process holds it."""
        observed, started = self._observed, self._now()
        if observed is None or not may_write(observed, identity=self.identity, now=started):
            return False
        lease = observed.lease
        spec = claim(lease, identity=self.identity, duration_s=self._lease_duration_s, now=self._wall_clock())
        if lease is None:
            body = creation_body(self._namespace, self._name, spec)
            answer = await self._client.request("POST", LEASES.path(self._namespace), body=body)
            self._observe(LEASES.decode(answer))
        else:
            await self._write(lease, spec, self._notes("" if lease.holder == self.identity else lease.note))
        # The deadline counts from the time before the request. Standbys see the write later, so the lease expires later
        # for them.
        self._leading_until = started + self._renew_deadline_s
        return True

    async def _write(self, lease: Lease, spec: LeaseSpec, notes: Mapping[str, str] = NO_NOTES) -> None:
        path = LEASES.path(self._namespace, self._name)
        body = change_body(lease, spec, notes)
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
