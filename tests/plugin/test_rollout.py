"""`kubectl vmherd rollout history, restart`: the terminal, and the effect of a restart. Golden files have the rest."""

import json

from controller.kinds import POOLS
from controller.pool.members.revisions import read_revisions
from controller.pool.spec.template import Template, parse_template
from plugin.views.edits import edited
from plugin.views.steering import restart_edits
from tests import pool_builders
from tests.plugin import herds
from tests.plugin.cluster import Cluster, Shell


def test_on_a_terminal_long_lines_of_the_history_end_at_the_edge(cluster: Cluster, shell: Shell, terminal: None):
    herds.pool_at_rest(cluster)
    assert max(map(len, shell.output("rollout history vmpool/web").splitlines())) <= 80


def test_a_restart_changes_the_digest_that_makes_a_pool_restart_its_vmis():
    document = json.loads(json.dumps({"metadata": {"name": "web"}, "spec": {"virtualMachineTemplate": {}}}))
    pool = pool_builders.pool()
    document["spec"]["virtualMachineTemplate"] = {"spec": pool_builders.vm_spec()}
    changed = edited(document, restart_edits(POOLS, document, "2026-08-01T12:00:00Z"))
    new = pool_builders.pool(spec=changed["spec"]["virtualMachineTemplate"]["spec"])
    before, after = parse_template(pool.spec), parse_template(new.spec)
    assert isinstance(before, Template)
    assert isinstance(after, Template)
    assert before.machine != after.machine
    assert before.disks == after.disks
    assert not read_revisions(pool_builders.snapshot(new, revisions=[]), after).current_exists
