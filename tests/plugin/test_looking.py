"""`kubectl vmherd list, tree, why`: texts of others in the output. The golden files have the usual output."""

import re

import pytest

from controller.apimachinery.label_selectors import LabelSelector
from controller.config.settings import Config
from controller.kubevirt.annotations import DISRUPTION_BUDGET, RELEASED
from controller.kubevirt.resources import (
    CONTROLLER_REVISIONS,
    DISRUPTION_BUDGETS,
    VMS,
    DisruptionBudget,
    DisruptionBudgetSpec,
)
from controller.leaderelection.lease import LEASES, SETTINGS
from controller.replicas.disruption_budget import OFF
from controller.takeover.virt_controller import DEPLOYMENTS
from informers.meta import ObjectKey, ObjectMeta
from plugin.views import pools
from tests import pool_builders
from tests.builders import seconds_ago
from tests.fakes.rules import wire
from tests.plugin import states
from tests.plugin.cluster import POOL, Cluster, Shell

WEB = ObjectKey("default", "web")


def test_revisions_of_other_owners_are_left_out(cluster: Cluster, shell: Shell):
    states.pool_at_rest(cluster)
    foreign = pool_builders.revision(pool_builders.pool("other", uid="another"), "other", owned=False)
    cluster.put(CONTROLLER_REVISIONS, foreign)
    assert len(shell.output("tree vmpool/web").splitlines()) == 4


def test_texts_in_objects_do_not_control_the_terminal(cluster: Cluster, shell: Shell):
    states.pool_at_rest(cluster)
    hostile = {"type": "ReplicaFailure", "status": "True", "message": "full\x1b[2J\nvmpool/web is fine"}
    cluster.server.change(POOL, WEB, {"status": {"conditions": [hostile], "printableStatus": "\x1b]0;x\x07"}})
    cluster.server.change(VMS, ObjectKey("default", "web-0"), {"status": {"printableStatus": "Running\x1b[31m"}})
    for verb in ("list", "tree vmpool/web", "why vmpool/web"):
        out = shell.output(verb)
        assert "\x1b" not in out
        assert "\nvmpool/web is fine" not in out


def test_why_has_a_command_for_members_whose_labels_are_changed_again_and_again(cluster: Cluster, shell: Shell):
    states.pool_at_rest(cluster, number=3, annotations={RELEASED: f"3 {wire(seconds_ago(60))}"})
    cluster.server.change(VMS, ObjectKey("default", "web-1"), {"metadata": {"labels": {"app": None}}})
    answer = shell.output("why vmpool/web")
    assert "held     stalled: the labels of web-1 do not match: they lack app=web; 3 in a row were released" in answer
    assert "try      kubectl label --overwrite vm web-1 app=web\n" in answer


BUDGET_CASES = {
    "none": (False, "", "next     create poddisruptionbudgets default/virtualmachinepool-web"),
    "foreign": (True, "", "PodDisruptionBudget other covers the same Pods"),
    "off": (True, "", OFF),
    "hidden": (True, DISRUPTION_BUDGETS.plural, ""),
}


@pytest.mark.parametrize(("is_beside", "forbidden", "told"), BUDGET_CASES.values(), ids=BUDGET_CASES)
def test_p27_why_says_what_becomes_of_the_disruption_budget(
    cluster: Cluster, shell: Shell, is_beside: bool, forbidden: str, told: str
):
    states.pool_at_rest(cluster, annotations={DISRUPTION_BUDGET: "1"}, status={"replicas": 2, "readyReplicas": 2})
    if is_beside:
        spec = DisruptionBudgetSpec(min_available=1, selector=LabelSelector(match_labels=pool_builders.LABELS))
        cluster.put(DISRUPTION_BUDGETS, DisruptionBudget(ObjectMeta(name="other", namespace="default"), spec))
    states.lease(cluster, settings=Config(disruption_budgets=told != OFF))
    cluster.forbidden = {forbidden}
    _, answer, err = shell("why vmpool/web")
    assert told in answer
    assert ("budget" in answer) == bool(told)
    assert ("cannot list them" in err) == bool(forbidden)


def test_the_plans_have_the_settings_of_the_leader(cluster: Cluster, shell: Shell):
    states.pool_at_rest(cluster)
    line = "scale vmpool/web --replicas=9 --dry-run=client"
    assert shell.output(line).startswith("would create: web-2, web-3, web-4, web-5, web-6, web-7, web-8\n")
    states.lease(cluster, settings=Config(max_replicas=5, burst=2))
    assert shell.output(line).startswith("would create: web-2, web-3\nheld: 1 more create waits for the next pass")
    cluster.forbidden = {"leases"}
    assert "web-8" in shell.output(line)
    cluster.forbidden = set()
    cluster.server.change(LEASES, ObjectKey("vmherd-system", "vmherd"), {"metadata": {"annotations": {SETTINGS: "{}"}}})
    assert "web-8" in shell.output(line)


def test_an_object_for_which_the_rules_fail_has_a_sentence_and_the_others_are_shown(
    cluster: Cluster, shell: Shell, monkeypatch: pytest.MonkeyPatch
):
    states.pool_at_rest(cluster)
    states.replica_set(cluster)
    sentence = "vmherd cannot process this object: OverflowError: date value out of range"
    stalled = {"type": "Stalled", "status": "True", "reason": "InternalError", "message": sentence}

    def fail(_: object) -> None:
        raise OverflowError("date value out of range")

    monkeypatch.setattr(pools, "plan_pool", fail)
    for status in ({"conditions": [stalled], "problem": sentence}, {"conditions": None, "problem": None}):
        cluster.server.change(POOL, WEB, {"status": status})
        code, out, err = shell("why vmpool/web")
        assert (code, err) == (0, "")
        assert sentence in out
    lines = shell("list")[1].splitlines()
    assert any(each.startswith("vmirs/testreplicaset") for each in lines)
    assert any(each.startswith("vmpool/web") for each in lines)


def test_why_asks_once_for_the_controller_of_a_type(cluster: Cluster, shell: Shell):
    states.pool_at_rest(cluster)
    cluster.install_kubevirt()
    for name in ("api", "db"):
        cluster.put(POOL, pool_builders.pool(name, uid=name))
    assert shell.output("why vmpool").count("not vmherd: KubeVirt reconciles virtualmachinepools") == 2
    assert sum(request.resource == DEPLOYMENTS for request in cluster.server.requests) == 1


@pytest.mark.parametrize("line", ["list", "tree vmpool/web", "rollout status vmpool/web --watch=false"])
def test_without_a_controller_each_view_warns_since_when_the_status_is_old(cluster: Cluster, shell: Shell, line: str):
    states.pool_rollout(cluster)
    assert "no controller" not in shell(line)[2]
    states.lease(cluster)
    assert "no controller" not in shell(line)[2]
    states.lease(cluster, renewed_s=600)
    told = r"Warning: no controller is at work since [-0-9T:]+Z: the status is of that time or older"
    assert re.fullmatch(told, shell(line)[2].splitlines()[0])
    cluster.install_kubevirt()
    assert "no controller" not in shell(line)[2]


def test_without_the_right_to_read_leases_no_mode_is_guessed(cluster: Cluster, shell: Shell):
    states.POOLS["takeover-held"](cluster)
    cluster.has_kubevirt = True
    cluster.forbidden = {"leases"}
    for line in ("why vmpool/web", "why"):
        answer = shell(line)[1]
        assert answer.count("not known here, because you may not read leases") == 1
        assert "takeover" not in answer
