"""The modes of vmherd, as docs/operating.md describes them. The mode decides which API groups vmherd reconciles."""

from enum import StrEnum


class Mode(StrEnum):
    AUTO = "auto"
    STANDALONE = "standalone"
    TAKEOVER = "takeover"
    ALONGSIDE = "alongside"
