"""Why a VM or VMI is not ready, as KubeVirt's conditions say it (R11, P17)."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from controller.apimachinery.conditions import Condition, find_condition, find_true, time_text, with_timezone
from controller.kubevirt import vmis, vms
from controller.kubevirt.vm_types import FAILURE, MANUAL_RECOVERY_REQUIRED, READY, VirtualMachine
from controller.kubevirt.vmi_types import POD_SCHEDULED, SYNCHRONIZED, VirtualMachineInstance
from informers.meta import ObjectMeta

LONGEST_TEXT: Final = 300
BOOT_SKEW: Final = timedelta(seconds=30)
"""The longest time between the phase Running and the condition `Ready` of a booting VM. Two programs write the times.
"""

NOT_READY: Final = "not ready"

CRASH_LOOP: Final = "CrashLoopBackOff"

NODE_LOST: Final = "NodeLost"

TERMINATING: Final = "Terminating"

UNDECODABLE: Final = "Undecodable"

_SYNONYMS: Final = {"ErrImagePull": "ImagePullBackOff"}
"""States that alternate for the same problem. With one word for both, the status is not written at each change."""


class Problem(Struct, frozen=True):
    """`state` is one word, `detail` a message or "". One that `is_slow` only takes long, and has not failed."""

    name: str
    state: str
    detail: str = ""
    since: datetime | None = None
    is_slow: bool = False

    @property
    def text(self) -> str:
        """The problem in one line, such as `web-3: ImagePullBackOff, Back-off pulling image`."""
        return f"{self.name}: {self.state}, {self.detail}" if self.detail else f"{self.name}: {self.state}"

    def after(self, earlier: Iterable[str]) -> "Problem":
        """Return the problem with the detail of an earlier text about the same VM in the same state.

        A number in a message of KubeVirt may change often, so a change of the message alone does not change the text.
        One of the alternating messages about an image tells nothing. It gives way to the other, also to that of another
        VM.
        """
        if self.state == CRASH_LOOP:
            return self  # the detail is not KubeVirt's
        others = ((text.partition(": ")[0], text.partition(f": {self.state}, ")[2]) for text in earlier)
        known = [(name, detail) for name, detail in others if detail]
        own = next((detail for name, detail in known if name == self.name), "")
        rich = next((detail for _, detail in known if not is_poor(detail)), self.detail)
        found = own if own and not is_poor(own) else self.detail
        return replace(self, detail=rich if is_poor(found) else found)


def is_poor(detail: str) -> bool:
    """Return True for the text of a kubelet between two attempts to pull an image. A newer kubelet adds the error."""
    return detail.startswith("Back-off pulling image") and "ErrImagePull" not in detail


def problem_state(state: str) -> str:
    return _SYNONYMS.get(state, state)


def one_line(text: str) -> str:
    """Return the text in one line of at most `LONGEST_TEXT` characters, without characters that cannot be printed."""
    line = "".join(each if each.isprintable() else "?" for each in " ".join(text[: 4 * LONGEST_TEXT].split()))
    return line if len(line) <= LONGEST_TEXT else f"{line[: LONGEST_TEXT - 3]}..."


_USUAL_FINALIZERS: Final = ("foregroundDeletion", "orphan")


def foreign_finalizers(meta: ObjectMeta) -> tuple[str, ...]:
    """Return the finalizers of other programs than KubeVirt, Kubernetes and vmherd on a terminating object."""
    if meta.deletion_timestamp is None:
        return ()
    return tuple(each for each in meta.finalizers or () if each not in _USUAL_FINALIZERS and "kubevirt.io/" not in each)


def terminating_problem(meta: ObjectMeta) -> Problem:
    """Return the problem of a VM or VMI that stays Terminating. Callers compare `since` with the deadline."""
    finalizers = ", ".join(meta.finalizers or ())
    detail = one_line(f"held by finalizers: {finalizers}") if finalizers else "not removed yet"
    return Problem(meta.name, TERMINATING, detail, with_timezone(meta.deletion_timestamp))


def lost_node_problem(vmi: VirtualMachineInstance, name: str, since: datetime | None, what: str) -> Problem:
    """`what` says what happens to the VM or VMI, and what it waits for."""
    when = f" since {time_text(since)}" if since is not None else ""
    detail = f"its node {vmis.node_of(vmi)} does not answer{when}; {what}"
    return Problem(name, NODE_LOST, detail, since)


def paused_problem(vmi: VirtualMachineInstance, name: str, since: datetime | None) -> Problem:
    """Return why a paused VMI is paused, in the words of KubeVirt, such as `PausedIOError`."""
    paused = vmis.paused_condition(vmi)
    return Problem(name, (paused and paused.reason) or "Paused", text_of(paused), since)


def cause_of_vm(vm: VirtualMachine, vmi: VirtualMachineInstance | None) -> Condition | None:
    conditions = vm.status.conditions if vm.status is not None else None
    failure = find_true(conditions, FAILURE) or (
        find_true(conditions, MANUAL_RECOVERY_REQUIRED) if vmi is None else None
    )
    if failure is not None:
        return failure
    return (cause_of_vmi(vmi) if vmi is not None else None) or vms.ready_condition(vm)


def cause_text_of_vm(vm: VirtualMachine, vmi: VirtualMachineInstance | None) -> str:
    """Return why the VM is not ready, or "": after a failed start, its number says more than the condition `Ready`."""
    cause, failures = cause_of_vm(vm, vmi), vms.start_failures_of(vm)
    if failures and (cause is None or cause.type == READY):
        return f"{failures} failed start{'' if failures == 1 else 's'} in a row"
    return text_of(cause)


def cause_of_vmi(vmi: VirtualMachineInstance) -> Condition | None:
    if vmis.is_deleting(vmi) or vmis.is_final(vmi) or vmis.is_ready(vmi):
        return None
    return vmis.paused_condition(vmi) or obstacle_of_vmi(vmi) or vmis.ready_condition(vmi)


def obstacle_of_vmi(vmi: VirtualMachineInstance) -> Condition | None:
    for type_ in (SYNCHRONIZED, POD_SCHEDULED):
        condition = find_condition(vmi.status.conditions if vmi.status is not None else None, type_)
        if condition is not None and condition.status == "False" and condition.message:
            return condition
    return None


def problem_state_of_vmi(vmi: VirtualMachineInstance) -> str:
    """Return the word for the error that prevents the start of the VMI, or ""."""
    obstacle = None if vmis.is_ready(vmi) else obstacle_of_vmi(vmi)
    return problem_state(obstacle.reason or obstacle.type) if obstacle is not None else ""


def text_of(condition: Condition | None) -> str:
    return "" if condition is None else one_line(condition.message or condition.reason or "")


def is_booting(vmi: VirtualMachineInstance, unready_since: datetime | None) -> bool:
    """Return True if this unready VMI runs, its guest still boots, and it was never ready."""
    started = vmis.entered(vmi, "Running") or with_timezone(vmi.metadata.creation_timestamp)
    if not vmis.is_running(vmi) or started is None or unready_since is None:
        return True
    return unready_since - started <= BOOT_SKEW
