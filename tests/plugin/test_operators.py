"""`kubectl vmherd expose, takeover, cleanup, version`: the commands of `vmherd` with the flags of kubectl."""

from __future__ import annotations

import json

import pytest
import yaml

from controller.kubevirt.annotations import POOL_FINALIZER
from controller.kubevirt.resources import SERVICES, VMS
from controller.takeover.virt_controller import KUBEVIRTS
from informers.errors import StatusError
from informers.meta import ObjectKey
from tests import pool_builders
from tests.plugin import herds
from tests.plugin.cluster import POOL, Cluster, Shell

KUBEVIRT = ObjectKey("kubevirt", "kubevirt")


@pytest.mark.parametrize(
    ("subject", "app"), [("vmpool/web", {"app": "web"}), ("vmirs testreplicaset", {"myvmi": "myvmi"})]
)
def test_a_service_is_created_for_both_kinds(cluster: Cluster, shell: Shell, subject: str, app: dict[str, str]):
    herds.pool_at_rest(cluster)
    herds.replica_set(cluster, updated=1)
    assert shell.output(f"expose {subject} --name=front --port=80 --field-manager=ops") == "service/front exposed\n"
    [(method, path, params, body)] = cluster.writes
    assert (method, path, params) == ("POST", "/api/v1/namespaces/default/services", {"fieldManager": "ops"})
    assert body["spec"]["selector"] == app
    assert cluster.document(SERVICES, "front")["metadata"]["name"] == "front"


def test_a_dry_run_of_expose_prints_the_line_or_the_manifest(cluster: Cluster, shell: Shell):
    herds.pool_at_rest(cluster)
    line = "expose vmpool/web --name=front --port=80 --dry-run=client"
    assert shell.output(line) == "service/front exposed (dry run)\n"
    assert shell.output(line.replace("=client", "")) == "service/front exposed (dry run)\n"
    assert yaml.safe_load(shell.output(f"{line} -o yaml"))["kind"] == "Service"
    assert shell.output(f"{line} -o name") == "service/front\n"
    assert cluster.writes == []


def test_expose_names_what_is_wrong(cluster: Cluster, shell: Shell):
    herds.pool_at_rest(cluster)
    assert 'did you mean "web"?' in shell.error("expose vmpool/wbe --name=front --port=80")
    assert shell.error("expose vmpool --name=front", code=2).startswith("error: name one object, such as vmpool/web")
    assert shell.error("expose vmpool/web --name=front --target-port=1", code=2).startswith(
        "error: --target-port needs"
    )
    assert shell.error("expose vmpool/web --name=front").endswith("set the ports with --port")


def test_a_takeover_patches_kubevirt_in_the_namespace_of_the_flag(cluster: Cluster, shell: Shell):
    cluster.install_kubevirt()
    assert shell.output("takeover -n kubevirt --dry-run=client").startswith("would patch KubeVirt kubevirt/kubevirt")
    assert cluster.writes == []
    assert "there is no KubeVirt in namespace shop" in shell.error("takeover -n shop")
    assert shell.output("takeover --field-manager=ops").startswith("patched KubeVirt kubevirt/kubevirt")
    assert cluster.writes[-1][2] == {"fieldManager": "ops"}
    assert shell.output("takeover").startswith("KubeVirt kubevirt/kubevirt has the patch already")


def test_a_takeover_prints_its_patch_and_the_first_reconciliation_for_programs(cluster: Cluster, shell: Shell):
    cluster.install_kubevirt()
    cluster.put(POOL, pool_builders.pool(replicas=1))
    plan = json.loads(shell.output("takeover --dry-run=client -o json"))
    assert (plan["name"], plan["namespace"]) == ("kubevirt.kubevirt.io/kubevirt", "kubevirt")
    assert (plan["patchType"], plan["patch"][-1]["op"]) == ("json", "add")
    assert any(line.startswith("virtualmachinepools default/web: ") for line in plan["preview"])
    assert yaml.safe_load(shell.output("takeover --dry-run=client -o yaml")) == plan
    assert cluster.writes == []
    done = json.loads(shell.output("takeover -o json"))
    assert (done["patch"], "preview" in done) == (plan["patch"], False)
    assert cluster.writes[-1][3] == plan["patch"]
    assert json.loads(shell.output("takeover -o json"))["patch"] is None


def test_a_takeover_prints_the_name_of_the_changed_object(cluster: Cluster, shell: Shell):
    cluster.install_kubevirt()
    assert shell.output("takeover -o name") == "kubevirt.kubevirt.io/kubevirt\n"
    assert len(cluster.writes) == 1


def test_a_server_dry_run_says_so_and_is_sent_to_the_server(cluster: Cluster, shell: Shell):
    cluster.install_kubevirt()
    code, out, err = shell("takeover --dry-run=server")
    assert (code, out.partition(":")[0]) == (0, "patched KubeVirt kubevirt/kubevirt")
    assert err.startswith("Note: this is a server dry run")
    assert cluster.writes[-1][2] == {"fieldManager": "kubectl-vmherd", "dryRun": "All"}
    assert "customizeComponents" not in (cluster.server.document(KUBEVIRTS, KUBEVIRT).get("spec") or {})


def test_switches_that_destroy_are_not_read_from_the_environment(
    cluster: Cluster, shell: Shell, monkeypatch: pytest.MonkeyPatch
):
    cluster.install_kubevirt()
    for name in ("UNDO", "FORCE", "SCALE_IN"):
        monkeypatch.setenv(f"VMHERD_{name}", "true")
        monkeypatch.setenv(f"KUBECTL_VMHERD_{name}", "true")
    assert shell.output("takeover").startswith("patched KubeVirt kubevirt/kubevirt: virt-controller restarts without")


def test_a_cleanup_stays_in_the_namespace_of_the_flag(cluster: Cluster, shell: Shell):
    for namespace in ("default", "shop"):
        cluster.put(POOL, pool_builders.pool(namespace=namespace, uid=f"uid-{namespace}"))
    assert "default/web" in shell.output("cleanup --dry-run=client")
    assert "default/web" not in shell.output("cleanup --dry-run=client -n shop")
    out = shell.output("cleanup -n shop")
    assert "1 objects cleaned up" in out
    left = {
        key.namespace for key in (ObjectKey("default", "web"), ObjectKey("shop", "web")) if _has_finalizer(cluster, key)
    }
    assert left == {"default"}


def test_a_cleanup_prints_the_changed_objects_for_programs(cluster: Cluster, shell: Shell):
    owner = pool_builders.pool()
    cluster.put(POOL, owner)
    cluster.put(VMS, *pool_builders.vms(owner, 0, finalizers=(POOL_FINALIZER,)))
    names = ["virtualmachine.kubevirt.io/web-0", "virtualmachinepool.pool.kubevirt.io/web"]
    plan = json.loads(shell.output("cleanup --dry-run=client -o json"))
    assert [each["name"] for each in plan] == names
    assert {each["namespace"] for each in plan} == {"default"}
    assert all(each["change"] for each in plan)
    assert shell.output("cleanup --dry-run=client -o name").splitlines() == names
    assert yaml.safe_load(shell.output("cleanup --dry-run=client -o yaml")) == plan
    assert cluster.writes == []
    assert shell.output("cleanup -o name").splitlines() == names
    assert not _has_finalizer(cluster, ObjectKey("default", "web"))
    assert json.loads(shell.output("cleanup -o json")) == []


def test_a_failed_cleanup_prints_the_objects_that_it_changed(cluster: Cluster, shell: Shell):
    owner = pool_builders.pool()
    cluster.put(POOL, owner)
    cluster.put(VMS, *pool_builders.vms(owner, 0, finalizers=(POOL_FINALIZER,)))
    down = StatusError("no", code=422, reason="Invalid")
    cluster.server.fault_for = lambda each: down if each.verb == "patch" and each.resource is POOL else None
    code, out, err = shell("cleanup -o name")
    assert (code, out) == (1, "virtualmachine.kubevirt.io/web-0\n")
    assert "1 writes failed" in err


def _has_finalizer(cluster: Cluster, key: ObjectKey) -> bool:
    return POOL_FINALIZER in (cluster.server.document(POOL, key)["metadata"].get("finalizers") or ())


def test_an_error_of_the_server_has_the_words_of_kubectl(cluster: Cluster, shell: Shell):
    cluster.forbidden = {"virtualmachinepools"}
    assert shell.error("cleanup --force").startswith("Error from server (Forbidden): virtualmachinepools is forbidden")


def test_the_version_needs_no_cluster(shell: Shell):
    assert shell.output("version").startswith("vmherd ")
    assert shell.output("version -n shop --context=nowhere").startswith("vmherd ")
    assert json.loads(shell.output("version -o json"))["clientVersion"]["version"]
    assert shell.output("--version").startswith("vmherd ")
