"""Many VMs of a hostile template cost the others nothing: see `bounds` for what is measured.

The user who writes has the role `edit` in one namespace, and no other right.
"""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress

import pytest

from sandbox.admin import Admin, Rejected
from tests.barrier import TIMER_S
from tests.controlplane.programs import ControllerProcess
from tests.controlplane.waits import eventually
from tests.faults.hostile import table, variations  # noqa: F401 - these modules add their rows
from tests.faults.hostile.attacks import ROWS, Attacker, Row
from tests.faults.hostile.bounds import Bounds, calm_pool
from tests.faults.hostile.cluster import (
    BUDGETS,
    CHECKED,
    MERGE,
    POOL,
    REVISIONS,
    SET,
    VM,
    VMI,
    HostileCluster,
    Tenant,
    may,
)

pytestmark = pytest.mark.cluster

ENDS_WITHIN_S = 20.0
SCALES = 2
"""The least number of scales of the neighbour during a row."""

FLAGS = ("--lease-duration", "40s", "--renew-deadline", "30s", "--retry-period", "2s", "--log-level", "info")
"""The lease lasts longer than that of an installation: a busy machine must not end it."""


TABLE = [row for row in ROWS if row.attack.__module__ == table.__name__]
OTHERS = [row for row in ROWS if row not in TABLE]
UNCHECKED = [row for row in (*TABLE, *OTHERS) if row.unchecked]


@pytest.fixture(scope="module")
def unchecked(hostile: HostileCluster) -> HostileCluster:
    """The controller for the definitions without validation."""
    calm_pool(hostile.neighbour)
    return hostile


@pytest.fixture(scope="module")
def checked(hostile: HostileCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostileCluster]:
    """A controller for the project's definitions, with the log level of an installation."""
    directory = tmp_path_factory.mktemp("checked")
    flags = (*FLAGS, "--max-replicas", "300", "--disruption-budgets")
    hostile.stop()  # it would read all VMs too
    cluster = HostileCluster(hostile.plane, directory, *flags, paths=CHECKED, lease="checked")
    calm_pool(cluster.neighbour)
    try:
        yield cluster
    finally:
        cluster.stop()
        hostile.restart()


@pytest.mark.parametrize("row", UNCHECKED, ids=lambda row: row.attack.__name__)
def test_without_validation_no_user_costs_the_others_anything(unchecked: HostileCluster, row: Row) -> None:
    endure(unchecked, row)


@pytest.mark.parametrize("row", OTHERS, ids=lambda row: row.attack.__name__)
def test_no_user_costs_the_others_anything(checked: HostileCluster, row: Row) -> None:
    endure(checked, row)


def test_all_rows_at_once_do_not_move_the_lease_to_the_standby(checked: HostileCluster) -> None:
    """The rows of the table, each in a namespace of its own. The standby reads all objects too."""
    attackers = [Attacker(checked.tenant(edits=True)) for _ in TABLE]
    bounds = Bounds(checked.program, checked.neighbour, checked.lease)
    with contained(checked, *attackers), checked.standby() as standby:
        eventually(lambda: is_ready(standby), what="the caches of the standby are filled")
        with bounds, Bounds(standby, checked.neighbour, checked.lease, scales=False) as beside:
            with ThreadPoolExecutor(len(TABLE)) as threads:
                list(threads.map(lambda row, attacker: row.attack(attacker), TABLE, attackers))
            for row, attacker in zip(TABLE, attackers, strict=True):
                assert waits_for_ending(bounds, row, attacker), f"{row.name}: {seen(attacker)}"
        print(f"leader: {bounds.figures}\nstandby: {beside.figures}")
        bounds.check()
        beside.check()
        assert standby.lines(msg="became leader") == []
        checked.check()


def is_ready(program: ControllerProcess) -> bool:
    try:
        return program.health("readyz")[0] == 200
    except OSError:
        return False


REFUSED = (
    ("create", "apps", REVISIONS),
    ("patch", "kubevirt.io", "virtualmachines/status"),
    ("patch", "pool.kubevirt.io", "virtualmachinepools/status"),
    ("create", "admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
)


def test_the_role_edit_reaches_no_other_namespace_and_nothing_that_the_controller_trusts(
    checked: HostileCluster,
) -> None:
    tenant = checked.tenant(edits=True)
    assert all(may(tenant.admin, "create", "kubevirt.io", plural, tenant.name) for plural in (VM, VMI, SET))
    assert may(tenant.admin, "create", "policy", BUDGETS, tenant.name)
    assert [what for what in REFUSED if may(tenant.admin, *what, tenant.name)] == []
    assert not may(tenant.admin, "create", "pool.kubevirt.io", POOL, checked.neighbour.name)
    assert not may(tenant.admin, "patch", "coordination.k8s.io", "leases", "vmherd-system")


@contextmanager
def contained(cluster: HostileCluster, *attackers: Attacker) -> Iterator[None]:
    """At the end of a block, delete what the users have written. If the block failed, start the controller again."""
    with ExitStack() as afterwards:
        try:
            yield
        except BaseException:
            cluster.stop()
            afterwards.callback(cluster.restart)
            raise
        finally:
            for each in attackers:
                afterwards.callback(wipe, each.tenant)


def endure(cluster: HostileCluster, row: Row) -> None:
    """Let the user write, wait for the ending, and check the bounds."""
    attacker = Attacker(cluster.tenant(edits=True))
    bounds = Bounds(cluster.program, cluster.neighbour, cluster.lease)
    with contained(cluster, attacker):
        with bounds:
            row.attack(attacker)
            ended = waits_for_ending(bounds, row, attacker)
        print(f"{row.name}: {bounds.figures}; refused: {attacker.refusals[:2]}")
        bounds.check()
        assert ended, f"{row.name}: {seen(attacker)}"
        eventually(lambda: is_idle(cluster.program, attacker.tenant.name), what="the controller has nothing to do here")
        cluster.check()


def is_idle(program: ControllerProcess, namespace: str) -> bool:
    """Whether no key of the namespace is queued, running, or due soon. The objects are too large for the barrier."""
    kinds = json.loads(program.health("debug/settled")[1])["kinds"].values()
    busy = [key for kind in kinds for name in ("queued", "running") for key in kind[name]]
    busy += [key for kind in kinds for key, delay_s in kind["delayed"].items() if delay_s < TIMER_S]
    return not any(key.startswith(f"{namespace}/") for key in busy)


def waits_for_ending(bounds: Bounds, row: Row, attacker: Attacker) -> bool:
    give_up = time.monotonic() + ENDS_WITHIN_S
    while time.monotonic() < give_up and not bounds.broken:
        if row.ending(attacker) and len(bounds.figures.follows) >= SCALES:
            return True
        time.sleep(0.1)
    return False


def seen(attacker: Attacker) -> str:
    return f"refused {attacker.refusals[:3]}, Events {attacker.tenant.reasons()}"


def wipe(tenant: Tenant) -> None:
    """Delete what the user has written, also what waits for a finalizer."""
    admin = Admin(tenant.plane.kubeconfig)
    for kind in (POOL, SET, VM, VMI, BUDGETS, REVISIONS):
        admin.send("DELETE", f"{tenant.path(kind)}?propagationPolicy=Background", timeout_s=60)
        for name in Attacker(tenant).names(kind):
            with suppress(Rejected):  # the controller or the garbage collector was faster
                admin.send("PATCH", tenant.path(kind, name), b'{"metadata":{"finalizers":null}}', MERGE)
