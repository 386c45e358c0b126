"""Leader election: one process of several works, the others stand by.

    async with elector.elected(stop) as leading:
        if leading:
            await work_until(stop)

The block is cancelled when the lease is lost, `renew_deadline_s` after the start of the last renewal that succeeded.
That is before the lease runs out for anybody else, by `lease_duration_s - renew_deadline_s`: the time that is left to
unwind. Because a process can be stopped and continued at any line, cancellation is not enough: `check` compares the
clock with that deadline and belongs right before every write. Nothing here reads a timestamp of the record (see
`controller.leaderelection.lease`).

A block that ends well releases the lease, so that a standby takes over with its next look, within `retry_period_s`.
One that fails or is cancelled lets it run out: requests may still be on their way.

What stays: a lease that somebody deletes while a leader works is put back by that leader at its next renewal, and
standbys that knew the leader wait for it. A process that starts in just that moment knows nothing and becomes leader
too, until the old one notices, within `retry_period_s`.
"""

from __future__ import annotations

import asyncio
import socket
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from random import random  # noqa: TID251 - jitter between candidates; tests hand in their own
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
"""A renewal comes up to this much later than planned, so that processes started together drift apart."""

SHORTEST_PAUSE_S = 0.05
"""A standby that waits for the last moment of a lease must not spin through it."""

REFUSALS = 3
"""How often in a row a lease may be refused us before that counts: a server that starts refuses everybody at first."""

NEVER = float("-inf")

FAILURES = (ApiError, TimeoutError, msgspec.DecodeError)
"""What may go wrong with one request and go well with the next."""


class NotLeader(GateClosed):
    """A write was held back, because somebody else may hold the lease by now. It never left."""

    def __init__(self) -> None:
        super().__init__("not sent: this process does not hold the lease (any more)")


class LeaseLost(Exception):
    """The lease could not be renewed in time, or somebody else has it: the work was cancelled."""


class ElectionImpossible(Exception):
    """Trying again will not help: no permission, no namespace, no valid name. `str()` says what to mend."""


class LeaderInstruments(Protocol):
    def leading(self, lease: str, *, master: bool) -> None:
        """Reported at the start, and whenever it changes (`leader_election_master_status`)."""


def new_identity() -> str:
    """A name for this process that no other has or had, and that tells people where it runs."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"


class LeaderElector:
    """One candidate for one lease. Times are seconds on the running loop's clock."""

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
        """`client` should be the lease's own: a busy one must not delay a renewal.

        `wall_clock` gives the times that people read in the lease; nothing depends on it.
        """
        if not lease_duration_s > renew_deadline_s > retry_period_s * JITTER > 0:
            raise ValueError(f"need lease_duration_s > renew_deadline_s > {JITTER} * retry_period_s > 0")
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

        # Half of the deadline, so that one request that hangs leaves time for another.
        self._attempt_s = renew_deadline_s / 2

        self._observed: Observed | None = None
        self._leading_until = NEVER
        """Set when a write of ours succeeded, to the start of that write plus the renew deadline; then only later."""

        self._failing, self._refusals = False, 0
        instruments.leading(name, master=False)

    @property
    def is_leader(self) -> bool:
        return asyncio.get_running_loop().time() < self._leading_until

    @property
    def holder(self) -> str:
        """Who holds the lease, as last seen; "" while nobody does or nothing is known."""
        return self._observed.holder if self._observed else ""

    def check(self) -> None:
        """Raise NotLeader unless the lease is surely ours at this moment. For right before each write."""
        if not self.is_leader:
            raise NotLeader

    @asynccontextmanager
    async def elected(self, stop: asyncio.Event) -> AsyncIterator[bool]:
        """Wait for the lease and yield True; or yield False if `stop` is set before.

        Raises LeaseLost after the block was cancelled for that reason, and ElectionImpossible. What the block itself
        raises arrives in an ExceptionGroup, as from `running`.
        """
        if not await self._acquire(stop):
            yield False
            return
        self._instruments.leading(self._name, master=True)
        log.info("became leader", lease=self._name, identity=self.identity)
        try:
            async with asyncio.timeout_at(self._leading_until) as term, running(self._keep(term)):
                yield True
        except (TimeoutError, ExceptionGroup) as error:
            if term.expired():
                raise LeaseLost(self._how_lost()) from error
            raise
        finally:
            self._leading_until = NEVER
            self._instruments.leading(self._name, master=False)
        await self._release()

    async def _acquire(self, stop: asyncio.Event) -> bool:
        """Try until the lease is ours, or until told to stop."""
        while not stop.is_set():
            if await self._campaign():
                if not stop.is_set():
                    return True
                self._leading_until = NEVER
                await self._release()
            elif await _is_set_within(stop, self._standby_pause_s()):
                break
        return False

    async def _campaign(self) -> bool:
        """Look, and take the lease if it is free. Return whether it is ours now."""
        try:
            async with asyncio.timeout(self._attempt_s):
                await self._read()
                ours = await self._act()
        except Forbidden as error:
            self._refusals += 1
            if self._refusals < REFUSALS:
                self._note_failure("may not use the lease", error)
                return False
            raise ElectionImpossible(
                f"not allowed to use the lease {self._name} in namespace {self._namespace}: {error};"
                " a Role there needs the verbs create, get and patch for leases.coordination.k8s.io"
            ) from error
        except Invalid as error:
            raise ElectionImpossible(f"the API server takes no lease like this: {error}") from error
        except NotFound as error:
            if self._observed is not None and self._observed.lease is None:
                raise ElectionImpossible(f"no place for the lease {self._name}: {error}") from error
            return False  # deleted after we looked
        except (Conflict, AlreadyExists):
            return False  # somebody was faster
        except FAILURES as error:
            self._note_failure("cannot reach the lease", error)
            return False
        self._failing, self._refusals = False, 0
        return ours

    def _standby_pause_s(self) -> float:
        """Looks come at most 0.9 retry periods apart: a released lease is taken within one."""
        pause_s = self._retry_period_s * (0.5 + 0.4 * self._chance())
        left_s = self._observed.held_until - asyncio.get_running_loop().time() if self._observed else 0.0
        return min(pause_s, max(left_s, SHORTEST_PAUSE_S)) if left_s > 0 else pause_s

    async def _keep(self, term: asyncio.Timeout) -> None:
        """Renew for ever, and move the end of the term with each success."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self._retry_period_s * (1 + (JITTER - 1) * self._chance()))
            try:
                if not await self._renew():
                    self._leading_until = NEVER
            except FAILURES as error:
                self._note_failure("cannot renew the lease", error)
            else:
                self._failing = False
            if not term.expired():  # else the work is being cancelled, and there is no way back
                term.reschedule(max(self._leading_until, loop.time()))

    async def _renew(self) -> bool:
        """Renew once. Return False when the lease is lost beyond doubt; raises one of FAILURES while in doubt."""
        left_s = self._leading_until - asyncio.get_running_loop().time()
        if left_s <= 0:
            return False  # the process was stopped for too long: what it knows is stale
        async with asyncio.timeout(min(self._attempt_s, left_s)):
            try:
                return await self._act()
            except (Conflict, NotFound, AlreadyExists):
                # Changed or deleted by somebody, or by a renewal of ours whose answer was lost.
                await self._read()
                return self.holder == self.identity and await self._act()

    def _how_lost(self) -> str:
        lease = f"the lease {self._namespace}/{self._name}"
        if self.holder in (self.identity, ""):
            return f"{lease} could not be renewed for {self._renew_deadline_s:g}s"
        return f"{lease} is held by {self.holder}"

    async def _release(self) -> None:
        """Give the lease back, if that is possible in a short time; else it runs out by itself.

        Not shielded: who cancels this loses nothing but the time until then.
        """
        try:
            async with asyncio.timeout(self._attempt_s):
                while self._observed is not None and self._observed.lease and self.holder == self.identity:
                    try:
                        await self._write(self._observed.lease, release(now=self._wall_clock()))
                    except Conflict:
                        await self._read()  # a renewal was on its way when the block ended
                    else:
                        log.info("released the lease", lease=self._name)
        except FAILURES as error:
            self._note_failure("could not release the lease", error)

    async def _act(self) -> bool:
        """Do what is to be done with the lease as it was last seen. Return whether it is ours now."""
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
                self._note(LEASES.decode(await self._client.request("POST", LEASES.path(self._namespace), body=body)))
            case Renew(lease) | Take(lease):
                await self._write(lease, spec)
        # From before the request was sent: standbys count from when they see its effect, which is later.
        self._leading_until = started + self._renew_deadline_s
        return True

    async def _write(self, lease: Lease, spec: LeaseSpec) -> None:
        path = LEASES.path(self._namespace, self._name)
        body = change_body(lease, spec)
        answer = await self._client.request("PATCH", path, body=body, content_type=PatchType.MERGE.value)
        self._note(LEASES.decode(answer))

    async def _read(self) -> None:
        try:
            answer = await self._client.request("GET", LEASES.path(self._namespace, self._name))
        except NotFound:
            self._note(None)
        else:
            self._note(LEASES.decode(answer))

    def _note(self, lease: Lease | None) -> None:
        before, now = self.holder, asyncio.get_running_loop().time()
        self._observed = observe(self._observed, lease, now=now, usual_duration_s=self._lease_duration_s)
        if self.holder not in (before, self.identity, ""):
            log.info("somebody else leads", lease=self._name, holder=self.holder)

    def _note_failure(self, event: str, error: BaseException) -> None:
        """One warning for a row of failures; the rest is detail."""
        tell = log.debug if self._failing else log.warning
        tell(event, lease=self._name, error=str(error) or type(error).__name__)
        self._failing = True


async def _is_set_within(event: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False
