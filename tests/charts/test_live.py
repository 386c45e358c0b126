"""The controller as the chart runs it, with the Deployment's arguments and a token of its service account."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.access import missing_permissions
from controller.config.settings import Config
from controller.preflight.permissions import permissions_needed
from informers.http.client import open_client
from informers.http.configuration import load_credentials
from sandbox.audit import read_records
from tests.charts.releases import Site
from tests.cluster import Kubectl
from tests.command_line import parse
from tests.controlplane.documents import vm_document, vmi_document
from tests.controlplane.namespace import PoolNamespace, SetNamespace
from tests.controlplane.programs import ControllerProcess, controller_process
from tests.controlplane.waits import eventually
from tests.helm import run_flags
from tools.chart.generated import ROOT

pytestmark = [pytest.mark.cluster, pytest.mark.e2e]

GROUPS = {"standalone": ("kubevirt.io", "pool.kubevirt.io"), "alongside": ("vmherd.dev", "pool.vmherd.dev")}


def account_kubeconfig(site: Site, directory: Path) -> Path:
    """A kubeconfig with a token of the Pods' service account. The account's roles are in force."""
    kubeconfig = site.kubeconfig_of(site.deployment()["spec"]["template"]["spec"]["serviceAccountName"], directory)
    config = parse(arguments(site), {})
    eventually(lambda: missing(kubeconfig, config) == [], what="the roles are in force")
    return kubeconfig


def arguments(site: Site) -> list[str]:
    """The Deployment's arguments without the ports, because a test needs free ports."""
    [container] = site.deployment()["spec"]["template"]["spec"]["containers"]
    assert "env" not in container
    return [argument for argument in run_flags(container["args"]) if "-bind-address=" not in argument]


@contextmanager
def released(site: Site, directory: Path, *flags: str) -> Iterator[ControllerProcess]:
    with controller_process(account_kubeconfig(site, directory), directory, *arguments(site), *flags) as program:
        yield program


def refusals(site: Site, since: int, account: str = "vmherd") -> set[tuple[str, str, str, int]]:
    """The requests of one of the release's accounts that the API server refused."""
    user = f"system:serviceaccount:{site.namespace}:{account}"
    records = [record for record in read_records(site.plane.audit_log, since) if record.username == user]
    assert records, "it asked nothing at all"
    return {(r.verb, r.resource, r.subresource, r.code) for r in records if r.code in (401, 403)}


def reconciles(site: Site, mode: str) -> None:
    """Check that a set and a pool become ready in the site's namespace, and that a deleted pool disappears."""
    replicaset_group, pool_group = GROUPS[mode]
    sets = SetNamespace(site.plane, site.namespace, group=replicaset_group)
    sets.make(2)
    vmis = sets.wait_for(2)
    assert {owner["apiVersion"] for vmi in vmis.values() for owner in vmi["metadata"]["ownerReferences"]} == {
        f"{replicaset_group}/v1"
    }
    pools = PoolNamespace(site.plane, site.namespace, group=pool_group)
    pools.make(2)
    pools.wait_for_ordinals(0, 1, ready=False)
    pools.scale(1)
    eventually(lambda: len(pools.vms()) == 1, what="one VM is deleted")
    resource = f"virtualmachinepools.{pool_group}"
    site.kubectl("delete", resource, "pool", "--timeout=60s")
    eventually(lambda: sets.reasons()["SuccessfulCreate"], what="the Events arrive")


def test_without_cluster_roles_the_release_works_only_in_the_given_namespaces(site: Site, tmp_path: Path) -> None:
    site.install(watchNamespaces=[site.namespace])
    bindings = site.kubectl.json("get", "clusterrolebindings")["items"]
    assert not [b for b in bindings if any(s.get("namespace") == site.namespace for s in b.get("subjects") or ())]
    since = site.plane.audit_position()
    with released(site, tmp_path) as program:
        reconciles(site, "standalone")
        assert program.stop() == 0
    assert refusals(site, since) == set()


def test_probes_and_the_helm_test_succeed(site: Site, tmp_path: Path) -> None:
    site.install()
    [container] = site.deployment()["spec"]["template"]["spec"]["containers"]
    with released(site, tmp_path) as program:
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            path = container[probe]["httpGet"]["path"]
            eventually(lambda path=path: program.health(path.removeprefix("/"))[0] == 200, what=path)
        assert helm_test(site, program.metrics_url).returncode == 0
    assert program.metrics_url in helm_test(site, program.metrics_url, patience_s=0).stderr


def helm_test(site: Site, url: str, *, patience_s: float = 60) -> subprocess.CompletedProcess[str]:
    """Run the script of the `helm test` Pod against this URL."""
    [hook] = [each for each in site.helm.render() if each["kind"] == "Pod"]
    command, script = hook["spec"]["containers"][0]["command"], hook["spec"]["containers"][0]["args"][0]
    assert command == ["python", "-c"]
    assert "60.0" in script
    script = script.replace("60.0", str(patience_s))
    return subprocess.run([sys.executable, "-c", script, url], capture_output=True, text=True, timeout=90, check=False)


def test_each_removed_rule_is_reported_as_a_missing_permission(site: Site, tmp_path: Path) -> None:
    site.install()
    account = account_kubeconfig(site, tmp_path)
    config = parse(arguments(site), {})
    for kind, name in (("clusterrole", "vmherd"), ("role", "vmherd-lease")):
        rules = site.kubectl.json("get", kind, name)["rules"]
        for place, taken in enumerate(rules):
            change_rules(site, kind, name, [rule for at, rule in enumerate(rules) if at != place])
            wanted = {resource.partition("/")[0] for resource in taken["resources"]}
            eventually(
                lambda wanted=wanted: all(any(each in line for line in missing(account, config)) for each in wanted),
                what=f"{wanted} told as missing",
            )
        change_rules(site, kind, name, rules)
        eventually(lambda: missing(account, config) == [], what="no missing permission")


def change_rules(site: Site, kind: str, name: str, rules: list[dict[str, Any]]) -> None:
    site.kubectl("patch", kind, name, "--type=merge", "-p", json.dumps({"rules": rules}))


def missing(kubeconfig: Path, config: Config) -> list[str]:
    async def ask() -> list[str]:
        async with open_client(await load_credentials(str(kubeconfig)), user_agent="vmherd-tests") as client:
            return [str(line) for line in await missing_permissions(client, permissions_needed(config))]

    return asyncio.run(ask())


def owned(document: dict[str, Any], group: str, kind: str, **more: Any) -> dict[str, Any]:
    owner = {"apiVersion": f"{group}/v1", "kind": kind, "name": "a", "uid": "b", "controller": True, **more}
    return {**document, "metadata": {**document["metadata"], "ownerReferences": [owner]}}


@pytest.mark.parametrize("mode", GROUPS)
def test_with_the_policy_its_account_creates_only_vms_of_sets_and_pools(site: Site, mode: str, tmp_path: Path) -> None:
    site.install(mode=mode, controllerPolicy={"enabled": True})
    account = Kubectl(account_kubeconfig(site, tmp_path), site.namespace)
    vm, vmi = vm_document("stolen"), vmi_document("stolen")
    [of_set, of_pool], others = GROUPS[mode], GROUPS[({*GROUPS} - {mode}).pop()]

    def said(document: dict[str, Any]) -> str:
        return account("create", "--dry-run=server", "-f", "-", stdin=document, check=False).stderr

    message = "the account of vmherd creates a VM only for a pool, and a VMI only for a replica set"
    eventually(lambda: message in said(vm), what="the policy is in force")
    assert "Forbidden" in said(vm)
    for refused in (
        vmi,
        owned(vm, of_set, "VirtualMachineInstanceReplicaSet"),
        owned(vm, others[1], "VirtualMachinePool"),
        owned(vm, of_pool, "VirtualMachinePool", controller=False),
        owned(vmi, of_pool, "VirtualMachinePool"),
        owned(vmi, f"x.{of_set}", "VirtualMachineInstanceReplicaSet"),
        owned(vmi, "apps", "ReplicaSet"),
    ):
        assert message in said(refused)
    assert said(owned(vm, of_pool, "VirtualMachinePool")) == ""
    assert said(owned(vmi, of_set, "VirtualMachineInstanceReplicaSet")) == ""
    site.kubectl("create", "--dry-run=server", "-f", "-", stdin=vm)
    since = site.plane.audit_position()
    with released(site, tmp_path) as program:
        reconciles(site, mode)
        assert program.stop() == 0
    assert refusals(site, since) == set()
    lease = site.kubectl.json("get", "lease", "vmherd")
    assert not lease["spec"].get("holderIdentity"), "it gave the lease of the release back"


def test_the_kustomize_base_of_the_policy_names_the_account_of_the_base() -> None:
    built = Kubectl(Path("none"))("kustomize", str(ROOT / "manifests" / "controllerpolicy")).stdout
    policy, binding = yaml.safe_load_all(built)
    assert binding["spec"]["policyName"] == policy["metadata"]["name"]
    base = yaml.safe_load_all((ROOT / "manifests" / "controller" / "rbac.yaml").read_text())
    [account] = [each["metadata"] for each in base if each["kind"] == "ServiceAccount"]
    user = f"system:serviceaccount:{account['namespace']}:{account['name']}"
    assert f"'{user}'" in policy["spec"]["matchConditions"][0]["expression"]
