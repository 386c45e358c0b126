"""Why a VM or VMI is not ready, as KubeVirt's conditions say it (R11, P17)."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct

from controller.apimachinery.conditions import Condition, find_condition, find_true, with_timezone
from controller.kubevirt import vmis, vms
from controller.kubevirt.vm_types import FAILURE, MANUAL_RECOVERY_REQUIRED, READY, VirtualMachine
from controller.kubevirt.vmi_types import POD_SCHEDULED, SYNCHRONIZED, VirtualMachineInstance
from informers.meta import ObjectMeta

LONGEST_TEXT: Final = 300
"""The maximum length of the message of one VM in a status."""

BOOT_SKEW: Final = timedelta(seconds=30)
"""The maximum time between the phase Running and the last change of the condition `Ready` of a booting VM.

Different programs write the two times.
"""

NOT_READY: Final = "not ready"

CRASH_LOOP: Final = "CrashLoopBackOff"

TERMINATING: Final = "Terminating"

UNDECODABLE: Final = "Undecodable"

_SYNONYMS: Final = {"ErrImagePull": "ImagePullBackOff"}
"""States that alternate for the same problem. With one word for both, the status is not written at each change."""


class Problem(Struct, frozen=True):
    """The reason why a VM or VMI is not ready.

    `state` is one word, and `detail` is a message or "". The field `since` is the time at which the VM became unready,
    or None if the time is unknown.
    """

    name: str
    state: str
    detail: str = ""
    since: datetime | None = None

    @property
    def text(self) -> str:
        """The problem in one line, such as `web-3: ImagePullBackOff, Back-off pulling image`."""
        return f"{self.name}: {self.state}, {self.detail}" if self.detail else f"{self.name}: {self.state}"

    def text_after(self, earlier: Iterable[str]) -> str:
        """Return the text of the problem, or an earlier text about the same VM in the same state.

        A message of KubeVirt may contain a number that changes often. So a change of the message alone does not change
        the text.
        """
        beginning = f"{self.name}: {self.state}, "
        return next((text for text in earlier if text.startswith(beginning)), self.text)


def problem_state(state: str) -> str:
    return _SYNONYMS.get(state, state)


def one_line(text: str) -> str:
    """Return the text in one line of at most `LONGEST_TEXT` characters, without characters that cannot be printed."""
    line = "".join(each if each.isprintable() else "?" for each in " ".join(text[: 4 * LONGEST_TEXT].split()))
    return line if len(line) <= LONGEST_TEXT else f"{line[: LONGEST_TEXT - 3]}..."


def terminating_problem(meta: ObjectMeta) -> Problem:
    """Return the problem of a VM or VMI that stays Terminating. The detail names the finalizers that hold the object.

    The result is a problem only if the object has been terminating for longer than the progress deadline. Callers check
    this with the field `since`.
    """
    finalizers = ", ".join(meta.finalizers or ())
    detail = one_line(f"held by finalizers: {finalizers}") if finalizers else "not removed yet"
    return Problem(meta.name, TERMINATING, detail, with_timezone(meta.deletion_timestamp))


def cause_of_vm(vm: VirtualMachine, vmi: VirtualMachineInstance | None) -> Condition | None:
    conditions = vm.status.conditions if vm.status is not None else None
    failure = find_true(conditions, FAILURE) or (
        find_true(conditions, MANUAL_RECOVERY_REQUIRED) if vmi is None else None
    )
    if failure is not None:
        return failure
    return (cause_of_vmi(vmi) if vmi is not None else None) or vms.ready_condition(vm)


def cause_text_of_vm(vm: VirtualMachine, vmi: VirtualMachineInstance | None) -> str:
    """Return why the VM is not ready, or "". The status of the pool and `kubectl vmherd` give the same text.

    While KubeVirt waits before the next start, its own condition only says that there is no VMI. Then the number of
    failed starts says more.
    """
    cause, failures = cause_of_vm(vm, vmi), vms.start_failures_of(vm)
    if failures and (cause is None or (vmi is None and cause.type == READY)):
        return f"{failures} failed start{'' if failures == 1 else 's'} in a row"
    return text_of(cause)


def cause_of_vmi(vmi: VirtualMachineInstance) -> Condition | None:
    if vmis.is_deleting(vmi) or vmis.is_final(vmi) or vmis.is_ready(vmi):
        return None
    return obstacle_of_vmi(vmi) or vmis.ready_condition(vmi)


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
    """Return True if this unready VMI was never ready. The VMI runs, and its guest still boots.

    `unready_since` is the time at which the VMI became unready. If the VMI lost its readiness, this time is much later
    than the start of the phase Running.
    """
    started = vmis.entered(vmi, "Running") or with_timezone(vmi.metadata.creation_timestamp)
    if not vmis.is_running(vmi) or started is None or unready_since is None:
        return True
    return unready_since - started <= BOOT_SKEW
