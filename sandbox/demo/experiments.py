"""The example objects, and the experiments, each with a key. All commands can be repeated, in any order."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

from msgspec import Struct

from controller.kubevirt.annotations import REPLACE_UNREADY_AFTER, STANDBY

Command: TypeAlias = tuple[str, ...]
EXAMPLES: Final = Path(__file__).parent.parent.parent / "manifests" / "examples"
SET_EXAMPLE: Final = EXAMPLES / "replicaset-v1alpha3.yaml"
POOL_EXAMPLE: Final = EXAMPLES / "pool-v1beta1-vm-pool-web.yaml"
SET_NAME, SET_SIZE = "testreplicaset", 3
POOL_NAME, POOL_SIZE = "vm-pool-web", 4
SET, POOL = f"vmirs/{SET_NAME}", f"vmpool/{POOL_NAME}"

BROKEN: Final = f"{POOL_NAME}-1"
READY_AFTER, BEHAVIOR = "sim.vmherd.dev/ready-after", "sim.vmherd.dev/behavior"


def merge_patch(resource: str, name: str, change: Any) -> Command:
    return "kubectl", "patch", resource, name, "--type", "merge", "-p", json.dumps(change, separators=(",", ":"))


def pool_template(annotations: Any) -> dict[str, Any]:
    return {"spec": {"virtualMachineTemplate": {"spec": {"template": {"metadata": {"annotations": annotations}}}}}}


def changed_vm(name: str, annotations: Any) -> tuple[Command, ...]:
    change = {"spec": {"template": {"metadata": {"annotations": annotations}}}}
    return merge_patch("vm", name, change), ("kubectl", "delete", "vmi", name, "--ignore-not-found")


UPDATE: Final = merge_patch("vmpool", POOL_NAME, pool_template({READY_AFTER: "2s", BEHAVIOR: None}))
BAD_IMAGE: Final = merge_patch("vmpool", POOL_NAME, pool_template({BEHAVIOR: "image-error"}))
FAIL: Final = changed_vm(BROKEN, {BEHAVIOR: "fail"})
MORE_SET, MORE_POOL = SET_SIZE + 2, POOL_SIZE + 2
DETACHED: Final = f"{POOL_NAME}-2"
HEAL_AFTER_S: Final = 5


class Experiment(Struct, frozen=True):
    key: str
    name: str
    purpose: str
    commands: tuple[Command, ...]


def scale_command(resource: str, name: str, replicas: int) -> Command:
    return "kubectl", "scale", resource, name, "--replicas", str(replicas)


def detach_command(name: str) -> Command:
    return "kubectl", "vmherd", "detach", f"vm/{name}"


def apply_command(*examples: object) -> Command:
    return "kubectl", "apply", *(part for example in examples for part in ("-f", str(example)))


UNDO: Final = ("kubectl", "vmherd", "rollout", "undo", POOL)
REST: Final = ("kubectl", "annotate", "--overwrite", "vmpool", POOL_NAME, f"{STANDBY}=1")
CLAIM: Final = ("kubectl", "vmherd", "claim", POOL, "--for", "job-1", "--wait", "30s")
_ALL: Final = (
    Experiment(
        "1",
        "scale",
        f"scale the set to {MORE_SET} VMIs and the pool to {MORE_POOL} VMs",
        (scale_command("vmirs", SET_NAME, MORE_SET), scale_command("vmpool", POOL_NAME, MORE_POOL)),
    ),
    Experiment("2", "update", "give the pool a new template: VMs restart one at a time, each boots for 2 s", (UPDATE,)),
    Experiment(
        "3",
        "break a VM",
        f"let the guest of {BROKEN} hang: it runs, and is not ready until you press 5",
        changed_vm(BROKEN, {BEHAVIOR: "never-ready"}),
    ),
    Experiment(
        "4", "bad image", "give the pool a template with a bad image: the update stops at the first VM", (BAD_IMAGE,)
    ),
    Experiment(
        "5",
        "heal",
        f"let the pool replace each VM that runs and is not ready for {HEAL_AFTER_S} s; 3 breaks one",
        (("kubectl", "annotate", "--overwrite", "vmpool", POOL_NAME, f"{REPLACE_UNREADY_AFTER}={HEAL_AFTER_S}"),),
    ),
    Experiment(
        "6",
        "detach",
        f"detach {DETACHED}: it keeps running, and the pool creates a VM with a new number",
        (detach_command(DETACHED),),
    ),
    Experiment("7", "undo", "return the pool to the template before", (UNDO,)),
    Experiment("8", "standby", "let the pool prepare one VM more, which stops as soon as it has been ready", (REST,)),
    Experiment("9", "claim", "take a VM out of the pool for a job: the standby of 8 starts in its place", (CLAIM,)),
    Experiment(
        "0",
        "reset",
        "back to the start: delete the pool and the detached VM, and create the examples again",
        (
            ("kubectl", "delete", "vmpool", POOL_NAME, "--ignore-not-found", "--cascade=foreground"),
            ("kubectl", "delete", "vm", DETACHED, "--ignore-not-found"),
            apply_command(SET_EXAMPLE, POOL_EXAMPLE),
        ),
    ),
)
EXPERIMENTS: Final[Mapping[str, Experiment]] = {each.key: each for each in _ALL}
