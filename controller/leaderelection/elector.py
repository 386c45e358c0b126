"""Leader election: of several processes, one works and the others stand by.

    async with elector.elected(stop) as leading:
        if leading:
            await work_until(stop)

Deadline: the block is cancelled if the lease is lost, at the latest `renew_deadline_s` after the start of the last
successful renewal. Other processes see the lease expire later, by `lease_duration_s - renew_deadline_s`. The cancelled
block has this time to end its work.

Gate: cancellation is not enough, because the operating system can stop a process at any line and continue it later.
`check` therefore compares the clock with the deadline; call it directly before every write. The elector never reads the
timestamps in the lease (see `controller.leaderelection.lease`).

Release: if the block ends without an exception, the lease is released. A standby reads the lease at least once in
`retry_period_s` and then takes over. If the block fails or is cancelled, the lease is not released but expires, because
requests may still be in flight.

Known limit: if a user deletes the lease while a leader works, the leader creates it again at its next renewal. Standby
processes that have seen the leader wait for this. A process that starts during this gap has not seen the leader, so it
becomes leader too. The old leader notices this within `retry_period_s` and stops.
"""

from __future__ import annotations

import asyncio
import socket
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from random import random  # noqa: TID251 - jitter between candidates; tests pass their own function
from typing import Protocol

import msgspec
import structlog

from controller.leaderelection.lease import (
    LEASES,
    Create,
    Lease,
    LeaseSpec,
    Observed,
    Renew,
    Take,
    Wait,
    change_body,
    claim,
    creation_body,
    decide,
    observe,
    release,
)
from controller.running import running
from controller.runtime.requests import Requests
from informers.errors import AlreadyExists, ApiError, Conflict, Forbidden, GateClosed, Invalid, NotFound
from informers.objects import PatchType

log = structlog.get_logger()

JITTER = 1.2
"""Each pause before a renewal is multiplied by a random factor from 1 to this value.

Without jitter, processes that start together would send their requests together.
"""

MIN_PAUSE_S = 0.05
"""The shortest pause of a standby. It prevents a busy loop shortly before the lease expires."""

MAX_FORBIDDEN = 3
"""After this many 403 answers in a row, the election fails.

One such answer is no proof, because a starting API server at first answers every request with 403.
"""

NEVER = float("-inf")

FAILURES = (ApiError, TimeoutError, msgspec.DecodeError)
"""Failures of one request after which the next request may succeed."""


class NotLeader(GateClosed):
    """A write was not sent, because this process does not hold the lease."""

    def __init__(self) -> None:
        super().__init__("not sent: this process does not hold the lease")


class LeaseLost(Exception):
    """The work was cancelled: the lease was not renewed in time, or another process holds it."""


class ElectionImpossible(Exception):
    """No retry can succeed: a permission or the namespace is missing, or the name is invalid. `str()` says which."""


class LeaderInstruments(Protocol):
    """The metrics of an election."""

    def leading(self, lease: str, *, master: bool) -> None:
        """Set `leader_election_master_status`. Called at the start and at each change."""


def new_identity() -> str:
    """Return a unique name for this process. It contains the host name, so that people see where the process runs."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"


class LeaderElector:
    """One candidate for one lease. All times are seconds on the clock of the running event loop."""

    def __init__(
        self,
        client: Requests,
        *,
        namespace: str,
        name: str,
        identity: str,
        wall_clock: Callable[[], datetime],
        instruments: LeaderInstruments,
        lease_duration_s: float = 15.0,
        renew_deadline_s: float = 10.0,
        retry_period_s: float = 2.0,
        chance: Callable[[], float] = random,
    ) -> None:
        """`client` should serve only the lease, so that other requests do not delay a renewal.

        `wall_clock` gives the times that are written to the lease for people. No decision depends on it. `chance`
        returns random numbers from 0 to 1 for the jitter.
        """
        if not lease_duration_s > renew_deadline_s > retry_period_s * JITTER > 0:
            raise ValueError(f"required: lease_duration_s > renew_deadline_s > {JITTER} * retry_period_s > 0")
        self._client = client
        self._namespace = namespace
        self._name = name
        self.identity = identity
        self._wall_clock = wall_clock
        self._instruments = instruments
        self._lease_duration_s = lease_duration_s
        self._renew_deadline_s = renew_deadline_s
        self._retry_period_s = retry_period_s
        self._chance = chance

        # Half of the deadline: if one request hangs, there is time for a second one.
        self._attempt_s = renew_deadline_s / 2

        self._observed: Observed | None = None
        self._leading_until = NEVER
        """The deadline of the leadership: the start of our last successful write plus the renew deadline.

        NEVER if this process does not lead.
        """

        self._failing, self._forbidden = False, 0
        instruments.leading(name, master=False)

    @property
    def is_leader(self) -> bool:
        """True if the lease is ours and the renew deadline has not passed."""
        return asyncio.get_running_loop().time() < self._leading_until

    @property
    def holder(self) -> str:
        """The identity of the last known holder of the lease; "" if no process holds it or it was not read yet."""
        return self._observed.holder if self._observed else ""

    def check(self) -> None:
        """Raise NotLeader unless the lease is certainly ours at this moment. Call this directly before each write."""
        if not self.is_leader:
            raise NotLeader

    @asynccontextmanager
    async def elected(self, stop: asyncio.Event) -> AsyncIterator[bool]:
        """Wait for the lease and yield True. Yield False if `stop` is set before that.

        Raises ElectionImpossible if no retry can succeed, and LeaseLost after the lease was lost and the block was
        cancelled. An exception of the block arrives in an ExceptionGroup, as with `running`.
        """
        if not await self._acquire(stop):
            yield False
            return
        self._instruments.leading(self._name, master=True)
        log.info("became leader", lease=self._name, identity=self.identity)
        try:
            async with asyncio.timeout_at(self._leading_until) as term, running(self._keep_renewing(term)):
                yield True
        except (TimeoutError, ExceptionGroup) as error:
            if term.expired():
                raise LeaseLost(self._loss_message()) from error
            raise
        finally:
            self._leading_until = NEVER
            self._instruments.leading(self._name, master=False)
        await self._release()

    async def _acquire(self, stop: asyncio.Event) -> bool:
        """Try until the lease is ours (return True) or until `stop` is set (return False)."""
        while not stop.is_set():
            if await self._try_to_acquire():
                if not stop.is_set():
                    return True
                self._leading_until = NEVER
                await self._release()
            elif await _is_set_within(stop, self._standby_pause_s()):
                break
        return False

    async def _try_to_acquire(self) -> bool:
        """Read the lease, and take it if it is free. Return True if it is ours now."""
        try:
            async with asyncio.timeout(self._attempt_s):
                await self._read()
                ours = await self._apply_decision()
        except Forbidden as error:
            self._forbidden += 1
            if self._forbidden < MAX_FORBIDDEN:
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
        self._failing, self._forbidden = False, 0
        return ours

    def _standby_pause_s(self) -> float:
        """Seconds until a standby reads the lease again.

        This is at most 0.9 retry periods, so that a released lease is taken within one retry period.
        """
        pause_s = self._retry_period_s * (0.5 + 0.4 * self._chance())
        left_s = self._observed.held_until - asyncio.get_running_loop().time() if self._observed else 0.0
        return min(pause_s, max(left_s, MIN_PAUSE_S)) if left_s > 0 else pause_s

    async def _keep_renewing(self, term: asyncio.Timeout) -> None:
        """Renew the lease until cancelled. Each success postpones the end of the term."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self._retry_period_s * (1 + (JITTER - 1) * self._chance()))
            try:
                if not await self._renew():
                    self._leading_until = NEVER
            except FAILURES as error:
                self._log_failure("cannot renew the lease", error)
            else:
                self._failing = False
            if not term.expired():  # an expired term has already cancelled the work and cannot be extended
                term.reschedule(max(self._leading_until, loop.time()))

    async def _renew(self) -> bool:
        """Renew once. Return False if the lease is certainly lost. Raise one of FAILURES if that is not known."""
        left_s = self._leading_until - asyncio.get_running_loop().time()
        if left_s <= 0:
            return False  # the process stood still for too long, so its last read is outdated
        async with asyncio.timeout(min(self._attempt_s, left_s)):
            try:
                return await self._apply_decision()
            except (Conflict, NotFound, AlreadyExists):
                # Another client changed or deleted the lease, or the answer of an earlier renewal was lost.
                await self._read()
                return self.holder == self.identity and await self._apply_decision()

    def _loss_message(self) -> str:
        lease = f"the lease {self._namespace}/{self._name}"
        if self.holder in (self.identity, ""):
            return f"{lease} could not be renewed for {self._renew_deadline_s:g}s"
        return f"{lease} is held by {self.holder}"

    async def _release(self) -> None:
        """Release the lease. If that does not succeed in a short time, give up: the lease then expires.

        The caller may cancel this at any time. The lease then expires as well.
        """
        try:
            async with asyncio.timeout(self._attempt_s):
                while self._observed is not None and self._observed.lease and self.holder == self.identity:
                    try:
                        await self._write(self._observed.lease, release(now=self._wall_clock()))
                    except Conflict:
                        await self._read()  # a renewal was in flight when the block ended
                    else:
                        log.info("released the lease", lease=self._name)
        except FAILURES as error:
            self._log_failure("cannot release the lease", error)

    async def _apply_decision(self) -> bool:
        """Decide on the last known state of the lease, and write the lease if needed. Return True if it is ours now."""
        if self._observed is None:
            return False
        started = asyncio.get_running_loop().time()
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
                await self._write(lease, spec)
        # Our deadline counts from before the request. Standbys see the write later, so for them the lease lasts longer.
        self._leading_until = started + self._renew_deadline_s
        return True

    async def _write(self, lease: Lease, spec: LeaseSpec) -> None:
        path = LEASES.path(self._namespace, self._name)
        body = change_body(lease, spec)
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
        """Remember a lease that was read or written; None if there is none."""
        before, now = self.holder, asyncio.get_running_loop().time()
        self._observed = observe(self._observed, lease, now=now, usual_duration_s=self._lease_duration_s)
        if self.holder not in (before, self.identity, ""):
            log.info("another process leads", lease=self._name, holder=self.holder)

    def _log_failure(self, event: str, error: BaseException) -> None:
        """Log the first of several successive failures as a warning, and the others at level debug."""
        emit = log.debug if self._failing else log.warning
        emit(event, lease=self._name, error=str(error) or type(error).__name__)
        self._failing = True


async def _is_set_within(event: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False
