"""The modes. A mode decides which API groups vmherd reconciles, because KubeVirt may reconcile the same kinds.

standalone   no other controller reconciles KubeVirt's groups; vmherd reconciles them
takeover     KubeVirt is installed, but its two loops are stopped; vmherd reconciles KubeVirt's groups in their place
alongside    KubeVirt runs unchanged; vmherd reconciles the same kinds in API groups of its own
auto         alongside if KubeVirt is installed, standalone otherwise; never takeover
"""

from __future__ import annotations

from enum import StrEnum


class Mode(StrEnum):
    AUTO = "auto"
    STANDALONE = "standalone"
    TAKEOVER = "takeover"
    ALONGSIDE = "alongside"


def mode_beside(*, kubevirt: bool) -> Mode:
    """Return the mode that `auto` selects."""
    return Mode.ALONGSIDE if kubevirt else Mode.STANDALONE
