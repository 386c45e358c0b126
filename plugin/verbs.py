"""For each command, its flags without the common flags, and the kind of things that its arguments stand for.

Completion imports this module at each press of TAB. So the module imports nothing that talks to a cluster.
"""

from collections.abc import Mapping
from typing import Final

import click

from controller.commands.shared_options import SERVICE_OPTIONS, TAKEOVER_OPTIONS
from controller.config.types import Integer, duration
from plugin.flags import ALL_NAMESPACES, JSON, NAME, SELECTOR, WIDE, WRITES, YAML, output

OBJECTS, MEMBERS, VMIS_ONLY = "objects", "members", "vmis"

LEASE_NAME: Final = "vmherd"
MOST: Final = 2**31 - 1
COLUMNS: Final = ("name", "status", "ready", "age", "problem")

_CHANGES: Final = (*WRITES, output(JSON, YAML, NAME))


def _switch(name: str, help: str, *, default: bool = False, short: str = "") -> click.Option:
    return click.Option([*([short] if short else []), f"--{name}/--no-{name}"], default=default, help=help)


FLAGS: Final[Mapping[str, tuple[click.Option, ...]]] = {
    "rollout status": (
        _switch("watch", "wait until the rollout ends", default=True, short="-w"),
        click.Option(["--timeout", "timeout_s"], default="0", type=duration(), help="the longest wait; 0 is no limit"),
        click.Option(["--revision"], default=0, type=Integer(0), help="fail if the rollout is to another revision"),
        SELECTOR,
        output(JSON, YAML, NAME),
    ),
    "rollout history": (
        click.Option(["--revision"], default=0, type=Integer(0), help="print the template of this revision"),
        SELECTOR,
        output(JSON, YAML),
    ),
    "rollout undo": (
        click.Option(["--to-revision"], default=0, type=Integer(0), help="the revision; 0 is the one before"),
        _switch("yes", "do not ask before disks are deleted", short="-y"),
        SELECTOR,
        *_CHANGES,
    ),
    "rollout restart": (SELECTOR, *_CHANGES),
    "rollout pause": (SELECTOR, *_CHANGES),
    "rollout resume": (SELECTOR, *_CHANGES),
    "list": (
        _switch("watch", "show it again and again", short="-w"),
        click.Option(["--sort-by"], type=click.Choice(COLUMNS), help="the column that orders the rows"),
        ALL_NAMESPACES,
        SELECTOR,
        output(JSON, YAML, NAME, WIDE),
    ),
    "tree": (
        _switch("watch", "show it again and again", short="-w"),
        ALL_NAMESPACES,
        SELECTOR,
        output(JSON, YAML, NAME, WIDE),
    ),
    "why": (
        click.Option(["--lease-name"], default=LEASE_NAME, show_default=True, help="the controller's lease"),
        ALL_NAMESPACES,
        SELECTOR,
        output(JSON, YAML),
    ),
    "ui": (
        click.Option(["--port"], default=0, type=Integer(0, 65535), help="the port on 127.0.0.1; 0 is a free one"),
        _switch("browser", "open the address in the browser, if the command runs on a terminal", default=True),
        ALL_NAMESPACES,
        SELECTOR,
    ),
    "plan": (
        click.Option(["-f", "--filename"], default="", help="a manifest: print what it would do to each VM"),
        ALL_NAMESPACES,
        SELECTOR,
        output(JSON, YAML),
    ),
    "scale": (
        click.Option(["--replicas"], required=True, type=Integer(0, MOST), help="the new number of VMs"),
        click.Option(["--current-replicas"], type=Integer(0, MOST), help="only scale if this is the number now"),
        SELECTOR,
        *_CHANGES,
    ),
    "detach": _CHANGES,
    "adopt": (click.Option(["--to"], required=True, metavar="vmirs/NAME", help="the set or pool"), *_CHANGES),
    "protect": _CHANGES,
    "unprotect": _CHANGES,
    "busy": (
        click.Option(["--for", "for_s"], type=duration(), help="how long from now, such as 2h or 45m"),
        _switch("clear", "end the mark"),
        *_CHANGES,
    ),
    "remove": (
        _switch("scale-in", "also make their pools and sets smaller now"),
        _switch("undo", "take the mark back"),
        *_CHANGES,
    ),
    "expose": (*SERVICE_OPTIONS, *_CHANGES),
    "takeover": (*TAKEOVER_OPTIONS, *WRITES),
    "version": (output(JSON, YAML),),
}
"""The flags of each command, except `cleanup`. The flags for the connection to the cluster are left out."""


def flags_of_verb(verb: str) -> tuple[click.Option, ...]:
    """Return the flags of a command, without the flags for the connection. An unknown command has none."""
    if verb == "cleanup":
        from controller.commands.cleanup_options import CLEANUP_OPTIONS  # noqa: PLC0415  this import is slow

        return (*CLEANUP_OPTIONS, *WRITES)
    return FLAGS.get(verb, ())


ARGUMENTS: Final[Mapping[str, str]] = {
    **dict.fromkeys(FLAGS.keys() - {"takeover", "ui", "version"}, OBJECTS),
    **dict.fromkeys(("detach", "protect", "unprotect", "busy", "remove"), MEMBERS),
    "adopt": VMIS_ONLY,
}
