"""The descriptor of flocks, the example of a new kind. The descriptor of a kind of the project belongs in
controller/kinds.py.
"""

from typing import Final

from controller.kinds import READ, Access, Kind
from controller.kubevirt.resources import VMIS
from tests.examples.flock.types import Flock

FLOCKS: Final[Kind[Flock]] = Kind(
    name="flock",
    noun="flock",
    package="tests.examples.flock",
    object_type=Flock,
    kind="VirtualMachineFlock",
    plural="virtualmachineflocks",
    version="v1",
    group="flock.example.org",
    own_group="flock.example.org",
    short_names=("vmflock",),
    own_short_names=("vmflock",),
    component="virtualmachineflock-controller",
    metric_prefix="example_vmflock",
    writes=(("created", (VMIS,)), ("deleted", (VMIS,))),
    access=(Access(VMIS, (*READ, "create", "delete")),),
)
