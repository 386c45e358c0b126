"""KubeVirt's virt-controller, as far as it matters whether its loops work on the kinds that are ours: what its
Deployment says, and the patch in the KubeVirt object that tells the loops to rest. Pure.

A loop rests when it has no workers: `--rs-controller-threads=0 --pool-controller-threads=0` (three is the default). All
others go on, so VMs and VMIs run as before. virt-operator puts these flags behind the arguments that are there, as a
JSON patch of `spec.customizeComponents.patches` says. `customizeComponents.flags` would be shorter, and replaces flags
that are not named in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Final, TypeAlias

import msgspec
from msgspec import Struct

from controller.kinds import KINDS, names_of
from informers.meta import ObjectMeta
from informers.resource import Resource

VIRT_CONTROLLER: Final = "virt-controller"
"""The name of the Deployment, of its container, and of the manager of its writes."""

LOOPS: Final[Mapping[str, str]] = {
    name: kind.loop_flag for kind, name in zip(KINDS, names_of(KINDS), strict=True) if kind.loop_flag
}
"""Which flag says how many workers a kind has."""

PATCHES: Final = "/spec/customizeComponents/patches"
Step: TypeAlias = dict[str, object]


class ComponentPatch(Struct, frozen=True, rename="camel"):
    """One of the patches that virt-operator applies to what it installs."""

    resource_name: str = ""
    resource_type: str = ""
    patch: str = ""
    type: str = ""


class Customizations(Struct, frozen=True):
    patches: tuple[ComponentPatch, ...] | None = None


class KubeVirtSpec(Struct, frozen=True, rename="camel"):
    customize_components: Customizations | None = None


class KubeVirt(Struct, frozen=True):
    """The object that stands for an installation of KubeVirt. KubeVirt allows one for a cluster."""

    metadata: ObjectMeta = ObjectMeta()
    spec: KubeVirtSpec | None = None


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


def working_loops(deployment: Deployment, kinds: Iterable[str]) -> tuple[str, ...]:
    """Those of these kinds whose loop has workers."""
    flags = _arguments_of(deployment)
    return tuple(kind for kind in kinds if not rests(flags, LOOPS[kind]))


def _arguments_of(deployment: Deployment) -> tuple[str, ...]:
    """What the Deployment starts virt-controller with: flags of `customizeComponents.flags` are in the command."""
    containers = deployment.spec.template.spec.containers or ()
    named = [container for container in containers if container.name == VIRT_CONTROLLER] or containers[:1]
    return tuple(text for container in named for text in (*(container.command or ()), *(container.args or ())))


def rests(arguments: Sequence[str], flag: str) -> bool:
    """Whether the loop of this flag has no workers. Of a flag that is given twice the last one counts."""
    workers = ""
    for text, following in zip_longest(arguments, arguments[1:], fillvalue=""):
        if text == flag:
            workers = following
        elif text.startswith(f"{flag}="):
            workers = text.partition("=")[2]
    return workers == "0"


def is_rolled_out(deployment: Deployment) -> bool:
    """Whether no Pod runs any more with what the Deployment said before."""
    status = deployment.status or DeploymentStatus()
    seen = (status.observed_generation or 0) >= (deployment.metadata.generation or 0)
    return seen and (status.replicas or 0) == (status.updated_replicas or 0)


def resting_patch() -> ComponentPatch:
    """The patch that has both loops rest."""
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
    """A JSON patch that adds our patch behind those that are there; None where it is there."""
    if any(map(_is_ours, patches_of(kubevirt))):
        return None
    ours = resting_patch()
    if kubevirt.spec is None:
        step: Step = {"op": "add", "path": "/spec", "value": {"customizeComponents": {"patches": [ours]}}}
    elif kubevirt.spec.customize_components is None:
        step = {"op": "add", "path": "/spec/customizeComponents", "value": {"patches": [ours]}}
    elif kubevirt.spec.customize_components.patches is None:
        step = {"op": "add", "path": PATCHES, "value": [ours]}
    else:
        step = {"op": "add", "path": f"{PATCHES}/-", "value": ours}
    return _encode(kubevirt, [step])


def hand_back(kubevirt: KubeVirt) -> bytes | None:
    """A JSON patch that takes exactly our patch away; None where it is not there."""
    held = patches_of(kubevirt)
    places = [place for place, patch in enumerate(held) if _is_ours(patch)]
    if not places:
        return None
    if len(places) == len(held):
        return _encode(kubevirt, [{"op": "remove", "path": PATCHES}])
    # From the last to the first, so that the places of the others stay.
    return _encode(kubevirt, [{"op": "remove", "path": f"{PATCHES}/{place}"} for place in reversed(places)])


def patches_of(kubevirt: KubeVirt) -> tuple[ComponentPatch, ...]:
    customizations = (kubevirt.spec or KubeVirtSpec()).customize_components or Customizations()
    return customizations.patches or ()


def _is_ours(patch: ComponentPatch) -> bool:
    """Whether it says what ours says, however somebody has written it down."""
    ours = resting_patch()
    subject = (patch.resource_type.lower(), patch.resource_name.lower(), patch.type)
    if subject != (ours.resource_type.lower(), ours.resource_name, ours.type):
        return False
    try:
        return bool(msgspec.json.decode(patch.patch) == msgspec.json.decode(ours.patch))
    except msgspec.DecodeError:
        return False


def _encode(kubevirt: KubeVirt, steps: Sequence[Step]) -> bytes:
    """For the version that was read and no other: places in a list mean nothing in the next one."""
    version: Step = {"op": "replace", "path": "/metadata/resourceVersion", "value": kubevirt.metadata.resource_version}
    return msgspec.json.encode([version, *steps])
