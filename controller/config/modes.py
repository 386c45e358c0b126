"""The modes of vmherd, as docs/operating.md describes them. The mode decides which API groups vmherd reconciles."""

from enum import StrEnum


class Mode(StrEnum):
    AUTO = "auto"
    STANDALONE = "standalone"
    TAKEOVER = "takeover"
    ALONGSIDE = "alongside"


def mode_beside(*, kubevirt: bool) -> Mode:
    """Return the mode that `auto` selects. `kubevirt` is True if KubeVirt is installed."""
    return Mode.ALONGSIDE if kubevirt else Mode.STANDALONE
