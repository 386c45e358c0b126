"""Namespaces of the kernel for a node: its own network, mounts and processes.

If the block ends, or if the tests are killed, the kernel ends all processes in the namespaces, and removes their
mounts, interfaces and packet filters. So a node leaves nothing behind on the machine.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from sandbox.processes import Child, Spawner
from tests.controlplane.waits import eventually

EMPTY = ("/run", "/var/lib", "/var/log")
"""The folders that are empty in the namespaces. The programs of a node keep their sockets and state there."""

WAITED_S = 120


class Isolation(Struct, frozen=True):
    """`host` and `address` are the two ends of the link between the machine and the namespaces."""

    spawner: Spawner
    directory: Path
    pid: int
    host: str
    address: str
    pods: str

    def start(self, program: str, *arguments: str) -> Child:
        """Start a program in the namespaces. `pid_in` returns its process."""
        name = Path(program).name
        return self.spawner.start(name, [*self._enter, program, *arguments], self.directory / f"{name}.log")

    def run(self, *command: str, check: bool = True, within_s: float = WAITED_S) -> str:
        """Run a command in the namespaces and return its output."""
        done = subprocess.run([*self._enter, *command], capture_output=True, text=True, timeout=within_s, check=False)
        assert not check or done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}"
        return done.stdout

    @property
    def _enter(self) -> list[str]:
        return ["/usr/bin/nsenter", f"--target={self.pid}", "--net", "--mount", "--pid", "--"]


@contextmanager
def isolation(directory: Path, number: int = 0) -> Iterator[Isolation]:
    """Namespaces with a link to this machine. The machine reaches the addresses of the Pods through the link.

    `number` tells apart the nodes of one run. There can be four.
    """
    spawner = Spawner()
    run = os.getpid() % 256  # another run on this machine has other addresses
    link, pods = 4 * number, 64 * number
    empty = " && ".join(f"mount -t tmpfs tmpfs {folder}" for folder in EMPTY)
    # The first process ignores SIGCHLD, so the kernel removes the orphans that end.
    first = f'{empty} && ip link set lo up && trap "" CHLD && exec sleep infinity'
    unshare = ["/usr/bin/unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    try:
        child = spawner.start("namespaces", [*unshare, "sh", "-c", first], directory / "namespaces.log")
        eventually(lambda: _command_of(pid_in(child)).startswith("sleep"), what="the namespaces of the node")
        addresses = (f"198.18.{run}.{link + 1}", f"198.18.{run}.{link + 2}", f"198.19.{run}.{pods}/26")
        node = Isolation(spawner, directory, pid_in(child), *addresses)
        _link(node, f"vmherd{run}-{number}")
        yield node
    finally:
        spawner.close()


def _link(node: Isolation, name: str) -> None:
    _ip(
        f"link add {name} type veth peer name uplink netns {node.pid}",
        f"addr add {node.host}/30 dev {name}",
        f"link set {name} up",
        f"route add {node.pods} via {node.address}",
    )
    for command in (
        f"addr add {node.address}/30 dev uplink",
        "link set uplink up",
        f"route add default via {node.host}",
    ):
        node.run("ip", *command.split())
    node.run("sysctl", "-w", "net.ipv4.ip_forward=1")


def connect(one: Isolation, other: Isolation) -> None:
    """Link two nodes. The link ends with the namespaces of either node."""
    names = [f"node{each.pid}" for each in (other, one)]
    _ip(f"link add {names[0]} netns {one.pid} type veth peer name {names[1]} netns {other.pid}")
    for here, there, name in zip((one, other), (other, one), names, strict=True):
        here.run("ip", "link", "set", name, "up")
        here.run("ip", "route", "add", there.address, "dev", name, "src", here.address)
        here.run("ip", "route", "add", there.pods, "via", there.address, "dev", name, "onlink")


def _ip(*commands: str) -> None:
    subprocess.run(["ip", "-batch", "-"], input="\n".join(commands), check=True, text=True, timeout=WAITED_S)


def pid_in(child: Child) -> int:
    """The process of a program that runs in the namespaces: the child of `nsenter` or `unshare`. 0 if there is none."""
    done = subprocess.run(["ps", "-o", "pid=", "--ppid", str(child.pid)], capture_output=True, text=True, check=False)
    return int(done.stdout or 0)


def _command_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ") if pid else ""
