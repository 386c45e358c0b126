"""`kubectl vmherd list, tree, why`: texts of others in the output. The golden files have the usual output."""

from controller.kubevirt.resources import CONTROLLER_REVISIONS, VMS
from informers.meta import ObjectKey
from tests import pool_builders
from tests.plugin import herds
from tests.plugin.cluster import POOL, Cluster, Shell

WEB = ObjectKey("default", "web")


def test_revisions_of_other_owners_are_left_out(cluster: Cluster, shell: Shell):
    herds.pool_at_rest(cluster)
    foreign = pool_builders.revision(pool_builders.pool("other", uid="another"), "other", owned=False)
    cluster.put(CONTROLLER_REVISIONS, foreign)
    assert len(shell.output("tree vmpool/web").splitlines()) == 4


def test_texts_in_objects_do_not_control_the_terminal(cluster: Cluster, shell: Shell):
    herds.pool_at_rest(cluster)
    hostile = {"type": "ReplicaFailure", "status": "True", "message": "full\x1b[2J\nvmpool/web is fine"}
    cluster.server.change(POOL, WEB, {"status": {"conditions": [hostile], "printableStatus": "\x1b]0;x\x07"}})
    cluster.server.change(VMS, ObjectKey("default", "web-0"), {"status": {"printableStatus": "Running\x1b[31m"}})
    for verb in ("list", "tree vmpool/web", "why vmpool/web"):
        out = shell.output(verb)
        assert "\x1b" not in out
        assert "\nvmpool/web is fine" not in out
