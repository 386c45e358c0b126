"""Who reconciles what, where KubeVirt may be doing it too: the modes, and the groups that each of them works on.

standalone   nobody else reconciles KubeVirt's groups: we do
takeover     KubeVirt is there, and its two loops were told to rest: we reconcile its groups in their place
alongside    KubeVirt stays as it is: we serve the same kinds under groups of our own
auto         standalone where there is no KubeVirt, alongside where there is one; never takeover
"""

from __future__ import annotations

from enum import StrEnum


class Mode(StrEnum):
    AUTO = "auto"
    STANDALONE = "standalone"
    TAKEOVER = "takeover"
    ALONGSIDE = "alongside"


def mode_beside(*, kubevirt: bool) -> Mode:
    """What `auto` comes to."""
    return Mode.ALONGSIDE if kubevirt else Mode.STANDALONE
