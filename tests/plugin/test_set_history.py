"""`kubectl vmherd rollout history` and `undo` for sets: what they print, and what they send."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from msgspec import Raw
from msgspec.structs import replace

from controller.kubevirt.annotations import ROLLING_UPDATE, TEMPLATE_HASH
from controller.kubevirt.replicaset_types import ReplicaSet
from controller.kubevirt.resources import CONTROLLER_REVISIONS, VMIS
from controller.replicaset.intent import Intent, parse_intent
from informers.meta import ObjectKey
from tests import builders
from tests.plugin.cluster import SET, Cluster, Shell

HERD = "virtualmachineinstancereplicaset.kubevirt.io/testreplicaset"
KEY = ObjectKey("default", "testreplicaset")
FORBIDDEN_VMIS = (
    'Warning: not everything is shown: virtualmachineinstances is forbidden: User "jane" cannot list them\n'
)


def template(number: int, **fields: Any) -> ReplicaSet:
    spec = json.dumps({"domain": {"devices": {}}, "hostname": f"v{number}"}).encode()
    return builders.replicaset(generation=number, spec=spec, **fields)


def hash_of(owner: ReplicaSet) -> str:
    intent = parse_intent(owner)
    assert isinstance(intent, Intent)
    return intent.template.hash


def put_set(cluster: Cluster, *, rolls: bool = False, vmis: tuple[int, ...] = (2, 2), **fields: Any) -> None:
    """A set with the templates 1, 2 and 3. Template 2 is the present one. `vmis` has the template of each VMI."""
    annotations = {ROLLING_UPDATE: "maxUnavailable=1"} if rolls else None
    owner = template(2, replicas=len(vmis), annotations=annotations, **fields)
    cluster.put(SET, owner)
    cluster.put(CONTROLLER_REVISIONS, *(builders.revision(template(number)) for number in (1, 2, 3)))
    for number, made_from in enumerate(vmis):
        labels = {**builders.LABELS, TEMPLATE_HASH: hash_of(template(made_from))}
        cluster.put(VMIS, builders.vmi(f"test{number}", owner=owner, labels=labels))


def hostname(cluster: Cluster) -> str:
    found: str = cluster.document(SET, "testreplicaset")["spec"]["template"]["spec"]["hostname"]
    return found


def test_the_history_of_a_set_lists_its_templates_with_the_changed_fields(cluster: Cluster, shell: Shell):
    put_set(cluster, vmis=(1, 2, 2))
    assert shell.output("rollout history vmirs/testreplicaset").splitlines() == [
        HERD,
        "REVISION   CURRENT   VMIS   AGE   CHANGES",
        "1                    1      60m   <none>",
        "2          *         2      60m   spec.hostname",
        "3                    0      60m   spec.hostname",
        "",
    ]


def test_the_history_of_a_set_as_json_has_one_entry_for_each_revision(cluster: Cluster, shell: Shell):
    put_set(cluster)
    rows = json.loads(shell.output("rollout history vmirs/testreplicaset -o json"))
    assert [(row["revision"], row["isCurrent"], row["vms"]) for row in rows] == [
        (1, False, 0),
        (2, True, 2),
        (3, False, 0),
    ]


def test_one_template_of_a_set_is_printed_as_yaml(cluster: Cluster, shell: Shell):
    put_set(cluster)
    head, _, body = shell.output("rollout history vmirs/testreplicaset --revision=3").partition("\n")
    assert head == f"{HERD} with revision #3"
    assert yaml.safe_load(body)["template"]["spec"]["hostname"] == "v3"


def test_undo_of_a_set_with_a_rolling_update_restores_the_newest_other_template(cluster: Cluster, shell: Shell):
    put_set(cluster, rolls=True)
    assert shell.output("rollout undo vmirs/testreplicaset") == f"{HERD} rolled back\n"
    assert hostname(cluster) == "v3"
    [(method, _, params, steps)] = cluster.writes
    assert (method, params) == ("PATCH", {"fieldManager": "kubectl-vmherd"})
    assert [step["path"] for step in steps] == ["/metadata/uid", "/spec/template"]
    assert hash_of(SET.decode(json.dumps(cluster.document(SET, "testreplicaset")).encode())) == hash_of(template(3))


def test_undo_of_a_set_without_a_rolling_update_says_which_vmis_stay_and_how_to_replace_them(
    cluster: Cluster, shell: Shell
):
    put_set(cluster, vmis=(1, 2, 2))
    code, out, err = shell("rollout undo vmirs/testreplicaset --to-revision=1 -n default")
    assert (code, out) == (0, f"{HERD} rolled back\n")
    assert hostname(cluster) == "v1"
    assert err == (
        "Note: 2 VMIs keep their present template, because the set has no rolling update. To replace them, run kubectl "
        'annotate vmirs testreplicaset -n default --overwrite vmherd.dev/rolling-update="maxUnavailable=25%", or '
        "delete them one after the other.\n"
    )


def test_undo_to_the_template_of_all_vmis_has_no_note(cluster: Cluster, shell: Shell):
    put_set(cluster, vmis=(1, 1))
    assert shell.output("rollout undo vmirs/testreplicaset --to-revision=1") == f"{HERD} rolled back\n"


def test_undo_to_the_present_template_of_a_set_changes_nothing(cluster: Cluster, shell: Shell):
    put_set(cluster)
    line = f"{HERD} skipped rollback (current template already matches revision 2)\n"
    assert shell.output("rollout undo vmirs/testreplicaset --to-revision=2") == line
    assert cluster.writes == []


def test_undo_of_a_set_that_git_manages_warns(cluster: Cluster, shell: Shell):
    put_set(cluster, rolls=True)
    cluster.server.change(SET, KEY, {"metadata": {"labels": {"kustomize.toolkit.fluxcd.io/name": "shop"}}})
    code, _, err = shell("rollout undo vmirs/testreplicaset")
    warning = 'Warning: vmirs "testreplicaset" belongs to Flux, which may undo this rollback: change the source, too\n'
    assert (code, err) == (0, warning)


def test_a_paused_set_is_not_rolled_back(cluster: Cluster, shell: Shell):
    put_set(cluster, paused=True)
    assert shell.error("rollout undo vmirs/testreplicaset") == (
        "error: you cannot roll back a paused replica set; resume it first with "
        "'kubectl vmherd rollout resume vmirs/testreplicaset' and try again"
    )


def test_an_invalid_set_can_be_rolled_back(cluster: Cluster, shell: Shell):
    put_set(cluster, rolls=True)
    cluster.server.change(SET, KEY, {"spec": {"template": {"metadata": {"labels": {"myvmi": "other"}}}}})
    assert shell.output("rollout undo vmirs/testreplicaset --to-revision=2") == f"{HERD} rolled back\n"
    assert cluster.document(SET, "testreplicaset")["spec"]["template"]["metadata"]["labels"] == builders.LABELS


def test_a_revision_that_cannot_be_read_is_listed_and_not_restored(cluster: Cluster, shell: Shell):
    put_set(cluster)
    broken = builders.revision(template(4))
    cluster.put(CONTROLLER_REVISIONS, replace(broken, data=Raw(b'{"template":7}')))
    assert shell.output("rollout history vmirs/testreplicaset").splitlines()[-2].split() == ["4", "0", "60m", "<none>"]
    assert shell.error("rollout undo vmirs/testreplicaset") == "error: revision 4 cannot be read"


@pytest.mark.parametrize("verb", ["history", "undo"])
def test_a_set_without_a_stored_template_has_no_history(cluster: Cluster, shell: Shell, verb: str):
    cluster.put(SET, template(1))
    assert shell.error(f"rollout {verb} vmirs/testreplicaset") == (
        'error: vmirs "testreplicaset" has no rollout history: vmherd has stored no template of this set. It stores '
        "the first one within five minutes after its start, unless it runs with --no-replicaset-history"
    )


@pytest.mark.parametrize("verb", ["history", "undo"])
def test_behind_kubevirts_controller_the_verb_says_that_it_keeps_no_templates(
    cluster: Cluster, shell: Shell, verb: str
):
    cluster.put(SET, template(1))
    cluster.install_kubevirt()
    error = shell.error(f"rollout {verb} vmirs/testreplicaset")
    assert error.startswith(
        'error: vmirs "testreplicaset" has no rollout history: KubeVirt\'s own controller runs this set, and keeps no '
        "templates of sets ("
    )


def test_behind_kubevirts_controller_an_undo_says_that_no_vmi_is_replaced(cluster: Cluster, shell: Shell):
    put_set(cluster, rolls=True)
    cluster.install_kubevirt()
    code, out, err = shell("rollout undo vmirs/testreplicaset")
    assert (code, out) == (0, f"{HERD} rolled back\n")
    assert err.startswith("Note: KubeVirt's own controller runs this set, and replaces no VMI of an old template (")


def test_behind_kubevirts_controller_a_set_is_not_restarted(cluster: Cluster, shell: Shell):
    put_set(cluster, rolls=True)
    cluster.install_kubevirt()
    error = shell.error("rollout restart vmirs/testreplicaset")
    assert error.startswith(
        "error: can't restart vmirs \"testreplicaset\": KubeVirt's own controller runs this set, and replaces no VMI "
        "of an old template ("
    )
    assert cluster.writes == []


def test_without_permission_to_read_revisions_the_error_names_them(cluster: Cluster, shell: Shell):
    put_set(cluster)
    cluster.forbidden.add("controllerrevisions")
    assert "controllerrevisions is forbidden" in shell.error("rollout history vmirs/testreplicaset")


def test_without_permission_to_read_vmis_the_history_of_a_set_leaves_out_their_number(cluster: Cluster, shell: Shell):
    put_set(cluster)
    cluster.forbidden = {"virtualmachineinstances"}
    code, out, err = shell("rollout history vmirs/testreplicaset")
    assert (code, [line.split()[-3] for line in out.splitlines()[2:-1]]) == (0, ["<unknown>"] * 3)
    assert out.splitlines()[3].split()[:2] == ["2", "*"]
    assert err == FORBIDDEN_VMIS


def test_without_permission_to_read_vmis_an_undo_says_that_vmis_keep_their_template(cluster: Cluster, shell: Shell):
    put_set(cluster)
    cluster.forbidden = {"virtualmachineinstances"}
    code, out, err = shell("rollout undo vmirs/testreplicaset")
    assert (code, out, hostname(cluster)) == (0, f"{HERD} rolled back\n", "v3")
    assert err.startswith("Note: the VMIs keep their present template, because the set has no rolling update.")
    assert err.endswith(FORBIDDEN_VMIS)


def test_undo_of_a_rolling_set_needs_no_permission_to_read_vmis(cluster: Cluster, shell: Shell):
    put_set(cluster, rolls=True)
    cluster.forbidden = {"virtualmachineinstances"}
    assert shell.output("rollout undo vmirs/testreplicaset") == f"{HERD} rolled back\n"


def test_the_other_commands_for_a_set_do_not_read_revisions(cluster: Cluster, shell: Shell):
    put_set(cluster)
    cluster.forbidden.add("controllerrevisions")
    assert shell.output("tree vmirs/testreplicaset")
    assert shell.output("rollout status vmirs/testreplicaset")
