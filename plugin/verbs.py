"""The commands: the module, the flags and an example of each one. The flags of the connection are in `plugin.flags`.

Completion imports this module at each press of TAB. So the module imports nothing that talks to a cluster.
"""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

import click

from controller.commands.shared_options import LEASE_ID, SERVICE_OPTIONS, TAKEOVER_OPTIONS
from controller.config.types import Integer, duration
from plugin.flags import (
    ALL,
    ALL_NAMESPACES,
    FIELD_MANAGER_FLAG,
    JSON,
    NAME,
    NO_HEADERS,
    SELECTOR,
    SHOWN,
    WRITES,
    YAML,
    output,
    repeated,
    switch,
)

OBJECTS, MEMBERS = "objects", "members"

MOST: Final = 2**31 - 1
_TERM: Final = duration(least_s=1, most_s=876_000 * 3600, needs_unit=True)
COLUMNS: Final = ("name", "status", "ready", "age", "problem")

_CHANGES: Final = (*WRITES, output(JSON, YAML, NAME))
_MANY: Final = (SELECTOR, ALL, *_CHANGES)
_WATCH: Final = switch("watch", "show it again and again", short="-w")


class Entry(NamedTuple):
    """A command with its module in `plugin.commands`, a short help and an example."""

    name: str
    module: str
    help: str
    example: str = ""


_TABLE: Final = """
rollout status   rollout_status           show a rollout until it is finished                  vmpool/web --timeout=9m
rollout history  rollout_history:history  list the templates that an object can return to      vmpool/web
rollout undo     rollout_history:undo     return an object to an earlier template              vmpool/web
rollout restart  steering:restart         restart all VMs, as fast as the update limits allow  vmpool/web
rollout pause    steering:pause           stop updates, and also scaling and healing           vmpool -l tier=front
rollout resume   steering:resume          end a pause                                          vmpool --all
list             listing                  list replica sets and pools with their state         -A --sort-by=problem
tree             listing:tree             show an object with its VMs, and why each is so      vmpool/web --watch
why              why                      say why an object is not as its spec asks            vmpool/web
history          listing:history          say what happened to an object: scaled, healed, stalled  vmpool/web
ui               ui                       show all sets and pools in the browser, live         -A
plan             plan                     print what the controller would write next           -f new.yaml
scale            steering:scale           set the number of VMs; a dry run names who leaves    vmpool/web --replicas=3
detach           membership:detach        take VMs out of their pool or set                    vm/web-3
adopt            membership:adopt         give VMIs to a replica set, or VMs to a pool         vm/web-3 --to=vmpool/web
protect          marks:protect            keep VMs at every scale-in                           vm/web-3 vm/web-4
unprotect        marks:unprotect          end the protection of VMs                            vm/web-3
busy             marks:busy               leave VMs alone until their work is done             vm/web-3 --for=2h
claim            claims:claim             take a free VM of a pool, and print its address      vmpool/web --for=job-7
release          claims:release           end claims: the VMs are deleted with their disks     vm/web-3
remove           marks:remove             mark VMs as the first to leave; or remove them now   vm/web-3 --scale-in
expose           operators:expose         create a Service for the VMs of a set or pool        vmpool/web --port=80
takeover         operators:takeover       stop KubeVirt's loops for both kinds, or start them  --dry-run=client
cleanup          operators:cleanup        remove vmherd's finalizers after its uninstallation  --dry-run=client
version          operators:version        print the version                                    -o json
options          operators:options        print the flags of the connection to the cluster
"""

VERBS: Final = {
    each.name: each for line in _TABLE.strip().splitlines() for each in [Entry(*re.split(" {2,}", line.strip()))]
}

KUBECTL: Final[Mapping[str, str]] = {
    **{"list": "get vmpool,vmirs", "tree": "get vm,vmi", "plan": "diff", "scale": "scale vmpool/NAME"},
    **dict.fromkeys(("protect", "unprotect", "busy", "remove"), "annotate vm"),
}
"""The command of kubectl that has the flags which a command lacks."""

FLAGS: Final[Mapping[str, tuple[click.Option, ...]]] = {
    "rollout status": (
        switch("watch", "wait until the rollout ends", default=True, short="-w"),
        click.Option(["--timeout", "timeout_s"], default="0", type=duration(), help="the longest wait; 0 is no limit"),
        click.Option(["--revision"], default=0, type=Integer(0), help="fail if the rollout is to another revision"),
        SELECTOR,
        SHOWN,
    ),
    "rollout history": (
        click.Option(["--revision"], default=0, type=Integer(0), help="print the template of this revision"),
        SELECTOR,
        SHOWN,
    ),
    "rollout undo": (
        click.Option(["--to-revision"], default=0, type=Integer(0), help="the revision; 0 is the one before"),
        switch("yes", "do not ask before disks are deleted", short="-y"),
        *_MANY,
    ),
    **dict.fromkeys(("rollout restart", "rollout pause", "rollout resume"), _MANY),
    "list": (
        _WATCH,
        click.Option(["--sort-by"], type=click.Choice(COLUMNS), help="the column that orders the rows"),
        repeated("-L", "--label-columns", help="labels, each with a column; can be repeated"),
        NO_HEADERS,
        ALL_NAMESPACES,
        SELECTOR,
        SHOWN,
    ),
    "tree": (
        _WATCH,
        switch("problems", "show only the VMs that are not ready or being deleted"),
        click.Option(["--all", "whole"], is_flag=True, help="show each VM, in as many lines as needed"),
        NO_HEADERS,
        ALL_NAMESPACES,
        SELECTOR,
        SHOWN,
    ),
    "why": (LEASE_ID, ALL_NAMESPACES, SELECTOR, SHOWN),
    "history": (SELECTOR, SHOWN),
    "ui": (
        click.Option(["--port"], default=0, type=Integer(0, 65535), help="the port on 127.0.0.1; 0 is a free one"),
        switch("browser", "open the address in the browser, if the command runs on a terminal", default=True),
        ALL_NAMESPACES,
        SELECTOR,
    ),
    "plan": (
        repeated("-f", "--filename", help="a manifest or a folder: print what it would do; can be repeated"),
        ALL_NAMESPACES,
        SELECTOR,
        SHOWN,
    ),
    "scale": (
        click.Option(["--replicas"], required=True, type=Integer(0, MOST), help="the new number of VMs"),
        click.Option(["--current-replicas"], type=Integer(0, MOST), help="only scale if this is the number now"),
        *_MANY,
    ),
    **dict.fromkeys(("detach", "protect", "unprotect"), _CHANGES),
    "adopt": (click.Option(["--to"], required=True, metavar="TYPE/NAME", help="the set or pool"), *_CHANGES),
    "busy": (
        click.Option(["--for", "for_s"], type=_TERM, help="how long, such as 45m"),
        switch("clear", "end the mark"),
        *_CHANGES,
    ),
    "claim": (
        click.Option(["--for", "claimant"], required=True, help="who takes the VM, such as job-123"),
        click.Option(["--until", "until_s"], type=_TERM, help="how long, such as 2h"),
        click.Option(["--wait", "wait_s"], default="0", type=duration(), help="how long to wait for a VM"),
        repeated("--secret", metavar="[KEY=]FILE", help="a file for the Secret of the VM; can be repeated"),
        output(JSON, YAML, NAME),
        FIELD_MANAGER_FLAG,
    ),
    "release": (switch("keep", "give the VM back to its pool, with its disks and their data"), *_CHANGES),
    "remove": (
        switch("scale-in", "also make their pools and sets smaller now"),
        switch("undo", "take the mark back"),
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
    **dict.fromkeys(("detach", "adopt", "protect", "unprotect", "busy", "release", "remove"), MEMBERS),
}
