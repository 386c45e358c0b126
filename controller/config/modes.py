"""The modes of vmherd. The mode decides which API groups vmherd reconciles.

The modes exist because KubeVirt may reconcile the same kinds as vmherd.

standalone   No other controller reconciles KubeVirt's API groups, so vmherd reconciles these groups.
takeover     KubeVirt is installed, but KubeVirt's controllers of pools and replica sets are stopped. vmherd reconciles
             KubeVirt's API groups.
alongside    KubeVirt runs unchanged. vmherd reconciles kinds with the same names in vmherd's own API groups.
auto         vmherd selects alongside if KubeVirt is installed, and standalone otherwise. It never selects takeover.
"""

from enum import StrEnum


class Mode(StrEnum):
    AUTO = "auto"
    STANDALONE = "standalone"
    TAKEOVER = "takeover"
    ALONGSIDE = "alongside"


def mode_beside(*, kubevirt: bool) -> Mode:
    """Return the mode that `auto` selects. `kubevirt` is True if KubeVirt is installed."""
    return Mode.ALONGSIDE if kubevirt else Mode.STANDALONE
