"""No secret reaches a log line, an Event, a metric, a debug page or the address of a request.

The controller runs with debug logs. Its objects contain a marker in each place where users put secrets, and the API
server answers with errors of each kind. One webhook even puts the whole object into its message.
"""

import json
import re
from typing import Any

import pytest

from tests.controlplane.waits import eventually
from tests.faults.hostile.cluster import POOL, SET, VMI, HostileCluster, Tenant, vm_template, vmi_template
from tests.faults.hostile.webhook import running_webhook

pytestmark = pytest.mark.cluster

MARKER = "s3cr3t-Marker-7f3a"
USER_DATA = f"#cloud-config\nchpasswd:\n  list: |\n    root:{MARKER}\n"


def secretive(**more: Any) -> dict[str, Any]:
    """The fields of a VMI spec in which users put secrets. Each field contains a marker in place of a secret."""
    volumes = [
        {"name": "init", "cloudInitNoCloud": {"userData": USER_DATA, "networkData": f"key: {MARKER}"}},
        {"name": "other", "unknown": {"env": [{"name": "PASSWORD", "value": MARKER}]}},
    ]
    firmware = {"kernelBoot": {"kernelArgs": f"token={MARKER}"}, "serial": MARKER}
    return {"domain": {"firmware": firmware}, "volumes": volumes, **more}


def marked_set(**more: Any) -> dict[str, Any]:
    template = vmi_template(**secretive(**more))
    template["metadata"]["annotations"] = {"kubevirt.io/ignitiondata": json.dumps({"passwd": MARKER})}
    return template


def marked_pool(**more: Any) -> dict[str, Any]:
    template = vm_template()
    template["metadata"]["annotations"] = {"note": MARKER}
    template["spec"]["template"] = marked_set(**more)
    return template


def places(hostile: HostileCluster, tenant: Tenant) -> dict[str, str]:
    """Return the texts that people other than the objects' owners may read. The keys are the places of these texts."""
    program = hostile.program
    debug = ("tasks", "queues", "memory", "settled", "objects")
    pages = {f"debug/{page}": program.health(f"debug/{page}")[1] for page in debug}
    addresses = "\n".join(record.request_uri for record in tenant.requests())
    return {
        "log": program.log.read_text(),
        "events": json.dumps(tenant.admin.get(tenant.path("events"))),
        "metrics": program.metrics(),
        "healthz": program.health("healthz?verbose")[1] + program.health("readyz?verbose")[1],
        "addresses": addresses,
        **pages,
    }


def test_no_secret_leaves_the_controller_whatever_the_server_answers(hostile: HostileCluster) -> None:
    tenant = hostile.tenant()
    assert hostile.program.pod is not None
    token = hostile.program.pod.token
    tenant.make_set("undecodable", 1, template=marked_set(), paused=MARKER)
    eventually(lambda: hostile.program.lines(msg="object cannot be decoded, skipped", name="undecodable"))
    with running_webhook() as webhook:
        with webhook.calls(tenant, "deny"):
            tenant.make_set("denied", 2, template=marked_set())
            tenant.make_pool("denied-pool", 2, virtualMachineTemplate=marked_pool())
            for name in ("denied", "denied-pool"):
                eventually(lambda name=name: "FailedCreate" in tenant.reasons().get(name, {}), what=name)
        with webhook.calls(tenant, "warn"):
            tenant.make_set("warned", 1, template=marked_set())
            eventually(lambda: "ApiWarning" in tenant.reasons().get("warned", {}), what="the warning is an Event")
        tenant.make_set(
            "invalid", 1, template={**marked_set(), "metadata": {"labels": {"app": "x", MARKER + "!": "x"}}}
        )
        wrong = marked_set()
        wrong["metadata"]["annotations"][f"bad key {MARKER}!"] = USER_DATA
        tenant.make_set("invalid-annotation", 1, template=wrong)
        tenant.make_pool("working", 2, virtualMachineTemplate=marked_pool())
        tenant.make_set("working-set", 2, template=marked_set(nodeSelector={"a": "b"}))
        eventually(lambda: len(tenant.children("working")) == 2 and len(tenant.children("working-set")) == 2)
        with webhook.calls(tenant, "deny"):
            changed = marked_pool(hostname=MARKER)
            tenant.patch(POOL, "working", {"spec": {"virtualMachineTemplate": changed, "replicas": 3}})
            victim = tenant.children("working-set")[0]
            tenant.patch(VMI, victim, {"metadata": {"annotations": {"vmherd.dev/deletion-cost": "cheap"}}})
            tenant.patch(SET, "working-set", {"spec": {"replicas": 1}})
            eventually(lambda: "FailedCreate" in tenant.reasons().get("working", {}))
    eventually(lambda: {"FailedCreate", "InvalidSpec"} & tenant.reasons().get("invalid-annotation", {}).keys())
    hostile.program.settle(tenant.name, tenant.admin, events=True)
    found = places(hostile, tenant)
    assert all(found.values())
    for secret in (MARKER, "chpasswd", token, token.split(".")[2], "PRIVATE KEY"):
        shown = {name: excerpts(text, secret) for name, text in found.items() if secret in text}
        # The names of labels and annotations are no secrets: the API server names a wrong one.
        kept = {name: [each for each in lines if f"{MARKER}!" not in each] for name, lines in shown.items()}
        assert {name: lines for name, lines in kept.items() if lines} == {}
    hostile.check()


def excerpts(text: str, secret: str) -> list[str]:
    return [text[max(0, each.start() - 150) : each.end() + 50] for each in re.finditer(re.escape(secret), text)]
