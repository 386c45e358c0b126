"""Options that several commands have. The module imports nothing slow, because completion imports it."""

from __future__ import annotations

from typing import Final

from controller.config.options import Option, Switch
from controller.config.types import ANY_NAMESPACE, OBJECT_NAME

DRY_RUN: Final = Switch("dry_run", "write nothing, and print the planned changes")
LEASE_ID: Final = Option("leader_election_id", OBJECT_NAME, "the name of the lease", default="vmherd")
LEASE_NAMESPACE: Final = Option(
    "leader_election_namespace", ANY_NAMESPACE, "the namespace of the controller's lease", unset="any"
)


def dangerous_switch(field: str, help: str) -> Switch:
    """Return a switch that only the command line can set. A forgotten environment variable must not destroy objects."""
    return Switch(field, help, has_variable=False)
