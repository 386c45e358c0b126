"""Error answers of the API server."""

from informers.errors import TransportError
from tests.fakes.requests import Garbled, Lost, refusal

UNREACHABLE = TransportError("cannot connect: Connection refused", sent=False)
QUOTA_FULL = refusal(403, "Forbidden", "exceeded quota: few")
INVALID = refusal(422, "Invalid", "spec.domain: Required value")
BUSY = refusal(429, "TooManyRequests", "too many requests", retry_after_s=7)
MODIFIED = refusal(409, "Conflict", "the object has been modified; please apply your changes to the latest version")
GONE = refusal(404, "NotFound", "not found")
# The two answers to a delete for another UID: from before storage, and from storage.
ANOTHER = refusal(
    409,
    "Conflict",
    'Operation cannot be fulfilled on VirtualMachineInstance.kubevirt.io "vm": the UID in the precondition (a) does not'
    " match the UID in record (b). The object might have been deleted and then recreated",
)
ANOTHER_IN_STORAGE = refusal(
    409,
    "Conflict",
    'Operation cannot be fulfilled on virtualmachineinstances.kubevirt.io "vm": StorageError: invalid object, Code: 4, '
    "Key: /kubevirt.io/vm, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: a, UID in "
    "object meta: ",
)
IN_DOUBT = [Lost.BEFORE, Lost.AFTER, Garbled(), *(refusal(code, "", "no luck") for code in (500, 502, 503, 504))]
