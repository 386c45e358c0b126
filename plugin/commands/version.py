"""`kubectl vmherd version`: the version of the plugin."""

import sys
from typing import Any

from controller.cli import version_line
from controller.version import version
from plugin.command import verb
from plugin.flags import flags_of
from plugin.printing import print_value


@verb("version", "Print the version. No cluster is needed.")
def command(**values: Any) -> None:
    flags = flags_of(values)
    if flags.output:
        print_value({"clientVersion": {"version": version(), "python": sys.version.split()[0]}}, flags.output)
    else:
        print(version_line())
