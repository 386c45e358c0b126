"""Finds out whether virt-controller's loops are stopped, and makes the patch that stops two loops.

`--rs-controller-threads=0` and `--pool-controller-threads=0` leave only these loops without workers. virt-operator
appends them by a JSON patch in `spec.customizeComponents.patches` of the KubeVirt object. The shorter field
`customizeComponents.flags` would replace all flags.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Final, TypeAlias

import msgspec
from msgspec import Struct, field

from controller.kinds import KINDS, names_of
from informers.meta import ObjectMeta
from informers.resource import Resource

VIRT_CONTROLLER: Final = "virt-controller"
"""The name of the Deployment, of its container, and of the field manager of its writes."""

LOOPS: Final[Mapping[str, str]] = {
    name: kind.loop_flag for kind, name in zip(KINDS, names_of(KINDS), strict=True) if kind.loop_flag
}
"""The flag of virt-controller that sets the number of workers, by the resource name of the kind."""

PATCHES: Final = "/spec/customizeComponents/patches"
Step: TypeAlias = dict[str, object]


class ComponentPatch(Struct, frozen=True, rename="camel"):
    """A patch in the KubeVirt object. virt-operator applies the patch to an object that virt-operator installs."""

    resource_name: str = ""
    resource_type: str = ""
    patch: str = ""
    type: str = ""


class Customizations(Struct, frozen=True):
    patches: tuple[ComponentPatch, ...] | None = None


class Configuration(Struct, frozen=True, rename="camel"):
    """`vm_rollout_strategy` is `LiveUpdate` or `Stage`, or absent for the default of the version."""

    vm_rollout_strategy: str | None = None


class WorkloadUpdates(Struct, frozen=True, rename="camel"):
    """`workload_update_methods` has `LiveMigrate` if KubeVirt may migrate VMs to end changes."""

    workload_update_methods: tuple[str, ...] | None = None


class KubeVirtSpec(Struct, frozen=True, rename="camel"):
    configuration: Configuration | None = None
    workload_update_strategy: WorkloadUpdates | None = None
    customize_components: Customizations | None = None


class KubeVirtStatus(Struct, frozen=True):
    observed_kube_virt_version: str | None = field(default=None, name="observedKubeVirtVersion")


class KubeVirt(Struct, frozen=True):
    """An object that represents an installation of KubeVirt. A cluster has at most one such object."""

    metadata: ObjectMeta = ObjectMeta()
    spec: KubeVirtSpec | None = None
    status: KubeVirtStatus | None = None


class Container(Struct, frozen=True):
    name: str = ""
    command: tuple[str, ...] | None = None
    args: tuple[str, ...] | None = None


class PodSpec(Struct, frozen=True):
    containers: tuple[Container, ...] | None = None


class PodTemplate(Struct, frozen=True):
    spec: PodSpec = PodSpec()


class DeploymentSpec(Struct, frozen=True):
    template: PodTemplate = PodTemplate()


class DeploymentStatus(Struct, frozen=True, rename="camel"):
    observed_generation: int | None = None
    replicas: int | None = None
    updated_replicas: int | None = None


class Deployment(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: DeploymentSpec = DeploymentSpec()
    status: DeploymentStatus | None = None


KUBEVIRTS: Final = Resource(KubeVirt, group="kubevirt.io", version="v1", plural="kubevirts", kind="KubeVirt")
DEPLOYMENTS: Final = Resource(Deployment, group="apps", version="v1", plural="deployments", kind="Deployment")


def active_loops(deployment: Deployment, kinds: Iterable[str]) -> tuple[str, ...]:
    flags = _arguments_of(deployment)
    return tuple(kind for kind in kinds if not is_stopped(flags, LOOPS[kind]))


def _arguments_of(deployment: Deployment) -> tuple[str, ...]:
    """Return the command, with `customizeComponents.flags`, and the arguments of virt-controller."""
    containers = deployment.spec.template.spec.containers or ()
    named = [container for container in containers if container.name == VIRT_CONTROLLER] or containers[:1]
    return tuple(text for container in named for text in (*(container.command or ()), *(container.args or ())))


def is_stopped(arguments: Sequence[str], flag: str) -> bool:
    """If the arguments contain the flag twice, the last value counts."""
    workers = ""
    for text, following in zip_longest(arguments, arguments[1:], fillvalue=""):
        if text == flag:
            workers = following
        elif text.startswith(f"{flag}="):
            workers = text.partition("=")[2]
    return workers == "0"


def is_rolled_out(deployment: Deployment) -> bool:
    status = deployment.status or DeploymentStatus()
    observed = (status.observed_generation or 0) >= (deployment.metadata.generation or 0)
    return observed and (status.replicas or 0) == (status.updated_replicas or 0)


def stop_patch() -> ComponentPatch:
    steps = [
        {"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": f"{flag}=0"}
        for flag in LOOPS.values()
    ]
    return ComponentPatch(
        resource_name=VIRT_CONTROLLER,
        resource_type="Deployment",
        patch=msgspec.json.encode(steps).decode(),
        type="json",
    )


def take_over(kubevirt: KubeVirt) -> bytes | None:
    """Return a JSON patch that adds vmherd's patch to the KubeVirt object, or None if the object has it."""
    if any(map(is_ours, patches_of(kubevirt))):
        return None
    ours = stop_patch()
    if kubevirt.spec is None:
        step: Step = {"op": "add", "path": "/spec", "value": {"customizeComponents": {"patches": [ours]}}}
    elif kubevirt.spec.customize_components is None:
        step = {"op": "add", "path": "/spec/customizeComponents", "value": {"patches": [ours]}}
    elif kubevirt.spec.customize_components.patches is None:
        step = {"op": "add", "path": PATCHES, "value": [ours]}
    else:
        step = {"op": "add", "path": f"{PATCHES}/-", "value": ours}
    return _encode(kubevirt, [step])


def undo_takeover(kubevirt: KubeVirt) -> bytes | None:
    """Return a JSON patch that removes only vmherd's patch from the KubeVirt object, or None without it."""
    patches = patches_of(kubevirt)
    indexes = [index for index, patch in enumerate(patches) if is_ours(patch)]
    if not indexes:
        return None
    if len(indexes) == len(patches):
        return _encode(kubevirt, [{"op": "remove", "path": PATCHES}])
    # Remove the patch with the highest index first. So the indexes of the other patches do not change.
    return _encode(kubevirt, [{"op": "remove", "path": f"{PATCHES}/{index}"} for index in reversed(indexes)])


def patches_of(kubevirt: KubeVirt) -> tuple[ComponentPatch, ...]:
    customizations = (kubevirt.spec or KubeVirtSpec()).customize_components or Customizations()
    return customizations.patches or ()


def is_ours(patch: ComponentPatch) -> bool:
    """Return True if this patch has the same effect as `stop_patch()`. The formatting of the patch does not matter."""
    ours = stop_patch()
    subject = (patch.resource_type.lower(), patch.resource_name.lower(), patch.type)
    if subject != (ours.resource_type.lower(), ours.resource_name, ours.type):
        return False
    try:
        return bool(msgspec.json.decode(patch.patch) == msgspec.json.decode(ours.patch))
    except msgspec.DecodeError:
        return False


def _encode(kubevirt: KubeVirt, steps: Sequence[Step]) -> bytes:
    """Return a JSON patch with these steps, for this version of the object only, because steps have list indexes."""
    version: Step = {"op": "replace", "path": "/metadata/resourceVersion", "value": kubevirt.metadata.resource_version}
    return msgspec.json.encode([version, *steps])
