"""The permissions of the cluster's roles view, edit and admin for replica sets and pools after an installation."""

from pathlib import Path

import pytest

from tests.charts.releases import KUBEVIRTS, Site
from tests.cluster import Kubectl
from tests.controlplane.documents import open_definition
from tests.controlplane.waits import eventually
from tests.manifests.documents import SOUND, SOUND_POOL
from tools.chart.helm import MAJORS

pytestmark = [pytest.mark.cluster, pytest.mark.e2e]

KINDS = {
    "standalone": ("virtualmachineinstancereplicasets.kubevirt.io", "virtualmachinepools.pool.kubevirt.io"),
    "alongside": ("virtualmachineinstancereplicasets.vmherd.dev", "virtualmachinepools.pool.vmherd.dev"),
}


def person(site: Site, directory: Path, role: str, *, kind: str = "clusterrole") -> Kubectl:
    """kubectl as a user who has only this role in the namespace."""
    name = f"{role}er"
    site.kubectl("create", "rolebinding", name, f"--{kind}={role}", f"--user={name}")
    return Kubectl(site.plane.write_kubeconfig(directory / f"{name}.kubeconfig", name), site.namespace)


def may(who: Kubectl, verb: str, resource: str, subresource: str = "") -> bool:
    return who("auth", "can-i", verb, resource, f"--subresource={subresource}", check=False).stdout.strip() == "yes"


def may_scale(who: Kubectl, mode: str) -> bool:
    return all(may(who, "patch", kind, "scale") for kind in KINDS[mode])


def make_both(site: Site, mode: str) -> tuple[str, str]:
    kinds = KINDS[mode]
    groups = [kind.partition(".")[2] for kind in kinds]
    site.kubectl.apply({**SOUND, "apiVersion": f"{groups[0]}/v1"}, {**SOUND_POOL, "apiVersion": f"{groups[1]}/v1beta1"})
    return f"{kinds[0]}/{SOUND['metadata']['name']}", f"{kinds[1]}/{SOUND_POOL['metadata']['name']}"


def editor_scales(site: Site, mode: str, both: tuple[str, str], directory: Path) -> Kubectl:
    """Check that a user with the role edit may scale and delete both. Return the user's kubectl."""
    editor = person(site, directory, "edit")
    eventually(lambda: may_scale(editor, mode), what="the roles are aggregated")
    for number, each in enumerate(both):
        editor("scale", each, "--replicas=5")
        assert site.kubectl("get", each, "-o", "jsonpath={.spec.replicas}").stdout == "5"
        editor("autoscale", each, "--min=3", "--max=10", f"--name=scaler-{number}")
        editor("delete", each)
    return editor


def test_an_editor_may_scale_and_autoscale_both_kinds_alongside(site: Site, tmp_path: Path) -> None:
    site.install(mode="alongside")
    editor_scales(site, "alongside", make_both(site, "alongside"), tmp_path)


def test_a_viewer_reads_both_kinds_an_editor_scales_them_and_an_admin_deletes_collections(
    site: Site, tmp_path: Path
) -> None:
    site.install()
    both, kinds = make_both(site, "standalone"), KINDS["standalone"]
    viewer, admin = person(site, tmp_path, "view"), person(site, tmp_path, "admin")
    eventually(lambda: all(may(viewer, "get", kind, "scale") for kind in kinds), what="the roles are aggregated")
    for each in both:
        viewer("get", each)
        refused = viewer("scale", each, "--replicas=5", check=False)
        assert "forbidden" in refused.stderr
    for kind in kinds:
        assert not any(may(viewer, verb, kind) for verb in ("create", "update", "patch", "delete", "deletecollection"))
    editor = editor_scales(site, "standalone", both, tmp_path)
    eventually(lambda: all(may(admin, "deletecollection", kind) for kind in kinds), what="the roles are aggregated")
    assert not any(may(editor, "deletecollection", kind) for kind in kinds)
    assert not any(may(admin, "patch", kind, "status") for kind in kinds), "the status is the controller's"


def test_with_roles_only_a_user_bound_to_the_role_may_scale(site: Site, tmp_path: Path) -> None:
    site.install(watchNamespaces=[site.namespace])
    both = make_both(site, "standalone")
    editor = person(site, tmp_path, "vmherd-edit", kind="role")
    eventually(lambda: may_scale(editor, "standalone"), what="the role is in force")
    for each in both:
        editor("scale", each, "--replicas=5")


def test_without_roles_for_people_an_editor_may_not_scale(site: Site, tmp_path: Path) -> None:
    site.install(rbac={"userRoles": "none"})
    [first, _] = make_both(site, "standalone")
    editor = person(site, tmp_path, "edit")
    assert "forbidden" in editor("scale", first, "--replicas=5", check=False).stderr


@pytest.mark.parametrize("major", MAJORS, indirect=True)
def test_the_roles_follow_the_role_aggregation_of_kubevirt(site: Site, tmp_path: Path) -> None:
    """Where KubeVirt leaves the role edit without its kinds, an installation does not give it the ones of vmherd."""
    site.kubectl.apply(open_definition("KubeVirt", KUBEVIRTS, "v1"))
    eventually(lambda: KUBEVIRTS in site.served(), what="the kind KubeVirt is served")
    kubevirt = {"apiVersion": "kubevirt.io/v1", "kind": "KubeVirt", "metadata": {"name": "kubevirt"}}
    site.kubectl.apply({**kubevirt, "spec": {"configuration": {"roleAggregationStrategy": "Manual"}}})
    notes = site.install(mode="alongside")
    assert "Bind the ClusterRoles vmherd-view, -edit and -admin to the users" in notes
    editor, bound = person(site, tmp_path, "edit"), person(site, tmp_path, "vmherd-edit", kind="clusterrole")
    eventually(lambda: may_scale(bound, "alongside"), what="the role counts")
    assert may(editor, "patch", "deployments", "scale")
    assert not any(may(editor, "get", kind) for kind in KINDS["alongside"])
    for strategy in ({"roleAggregationStrategy": "AggregateToDefault"}, {}):
        site.kubectl.apply({**kubevirt, "spec": {"configuration": strategy}})
        assert "Users with the role view" in site.upgrade(mode="alongside")
        eventually(lambda: may_scale(editor, "alongside"), what="aggregated")
    site.upgrade(mode="alongside", rbac={"userRoles": "manual"})
    eventually(lambda: not may(editor, "get", KINDS["alongside"][0]), what="the roles are not aggregated")
