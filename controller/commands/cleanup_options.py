"""The options of `cleanup`, without those of the connection and the dry run. Completion imports this module."""

from typing import Final

from controller.commands.shared_options import LEASE, dangerous_switch
from controller.config.modes import Mode
from controller.config.options import Listed, Option
from controller.config.types import GROUP, OneOf
from controller.kinds import KINDS

CLEANED: Final = tuple(kind for kind in KINDS if kind.finalizer)
SCOPE: Final = (
    Option(
        "mode",
        OneOf(*(mode.value for mode in Mode)),
        "the mode of the controller; the API groups follow from it",
        default=Mode.AUTO,
    ),
    *(
        Option(
            kind.group_setting,
            GROUP,
            f"the API group of the {kind.name}s",
            unset=f"follows from the mode: {kind.group}, or {kind.own_group} with alongside",
        )
        for kind in CLEANED
    ),
    Listed("watch_namespaces", "the namespaces to clean up; can be repeated"),
)
FORCE: Final = dangerous_switch("force", "continue even if a controller runs, or if disks cannot be kept")
CLEANUP_OPTIONS: Final = (*SCOPE, FORCE, *LEASE)
