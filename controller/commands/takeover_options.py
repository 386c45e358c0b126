"""The options of `takeover`, without those of the connection and the dry run. Completion imports this module."""

from __future__ import annotations

from typing import Final

from controller.commands.shared_options import LEASE_ID, LEASE_NAMESPACE, dangerous_switch
from controller.config.options import Option
from controller.config.types import ANY_NAMESPACE

KUBEVIRT_NAMESPACE: Final = Option("kubevirt_namespace", ANY_NAMESPACE, "the namespace of KubeVirt", unset="any")
UNDO: Final = dangerous_switch("undo", "start KubeVirt's loops for replica sets and pools again")
FORCE: Final = dangerous_switch("force", "undo even if the controller still runs")
LEASE: Final = (LEASE_ID, LEASE_NAMESPACE)
TAKEOVER_OPTIONS: Final = (KUBEVIRT_NAMESPACE, UNDO, FORCE, *LEASE)
