"""Brings up KubeVirt from its source on a real node, and runs a command on it: `python -m tools.realkubevirt SOURCE`.

Without a command, the cluster stays up until Ctrl-C. Needs root, a gigabyte for each VM, and Debian's packages.
"""

import argparse
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from sandbox.binaries import cache_directory
from tools.realkubevirt.cluster import build, running_kubevirt
from tools.realkubevirt.disk_stories import GUEST_DISK


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.realkubevirt", description=__doc__)
    parser.add_argument("source", type=Path, metavar="SOURCE", help="a checkout of KubeVirt")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND", help="runs on the cluster")
    parser.add_argument("--version", default="v1.9.0", help="the version that KubeVirt reports")
    parser.add_argument(
        "--work", type=Path, default=cache_directory() / "realkubevirt", help="the folder of the builds"
    )
    parser.add_argument("--nodes", type=int, default=1, choices=range(1, 5), help="VMs migrate between them")
    parser.add_argument(
        "--cdi", type=Path, metavar="CDI", help="a checkout of CDI, with the checkouts of the CSI driver beside it"
    )
    parser.add_argument("--built", action="store_true", help="do not build: the images are there")
    options = parser.parse_args()
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.default_int_handler)  # the cluster ends in order
    if not options.built:
        build(options.source, options.work, options.version, options.cdi)
    with running_kubevirt(options.work, options.version, options.nodes, with_disks=bool(options.cdi)) as nodes:
        kubeconfig = str(nodes[0].plane.kubeconfig)
        print(f"export KUBECONFIG={kubeconfig}", flush=True)
        if not options.command:
            with suppress(KeyboardInterrupt):
                signal.pause()
            return 0
        environment = {**os.environ, "KUBECONFIG": kubeconfig}
        if options.cdi:
            environment[GUEST_DISK] = str(options.work / "guest" / "guest" / "disk" / "guest.img")
        return subprocess.run(options.command, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
