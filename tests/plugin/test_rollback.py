"""What `rollout status`, `why`, `list`, `rollout history` and `rollout restart` show after a return by itself (P29)."""

from controller.kubevirt.annotations import READY_REVISION, ROLLBACK, ROLLED_BACK
from controller.replicas.rollback import return_target
from informers.meta import ObjectKey
from tests import pool_builders
from tests.plugin.cluster import POOL, Cluster, Shell
from tests.pool_builders import intent_of

TOLD = "revision web-3 was not ready in time; its VMs return to revision web-2 until the template changes"


def rolled_back(cluster: Cluster) -> None:
    """A pool whose two VMs have returned from web-3 to web-2."""
    old, spec = pool_builders.pool(generation=2), pool_builders.vm_spec(image="v2")
    digest = intent_of(pool_builders.pool(spec=spec)).template.digest
    annotations = {ROLLBACK: "stalled", READY_REVISION: "web-2", ROLLED_BACK: f"{digest} to web-2"}
    pool = pool_builders.pool(generation=3, replicas=2, spec=spec, annotations=annotations)
    vms = pool_builders.vms(pool, 0, 1, revision="web-2")
    revisions = [pool_builders.revision(old, "web-2", number=2), pool_builders.revision(pool, "web-3", number=3)]
    cluster.put_pool(pool, vms, [pool_builders.vmi(each) for each in vms], revisions)


def test_each_command_says_that_the_vms_have_returned_and_why(cluster: Cluster, shell: Shell):
    rolled_back(cluster)
    assert shell.error("rollout status vmpool/web --watch=false") == f'error: vmpool "web" stalled: {TOLD}'
    assert f"held     stalled: {TOLD}" in shell.output("why vmpool/web")
    [row] = shell.output("list").splitlines()[1:]
    assert row.split()[1:4] == ["RolledBack", "2/2", "0"]
    rows = shell.output("rollout history vmpool/web").splitlines()
    assert ["rolled back" in each for each in rows if each[:1].isdigit()] == [False, True]


def test_a_restart_changes_the_template_so_it_is_tried_again(cluster: Cluster, shell: Shell):
    rolled_back(cluster)
    shell.output("rollout restart vmpool/web")
    pool = cluster.server.find(POOL, ObjectKey("default", "web"))
    assert return_target(pool.metadata, intent_of(pool).template.digest) == ""
