"""`python -m benchmarks.soak [--minutes 60]`: a small load for an hour. The resources of the controller must not grow.

Users scale, update and replace sets and pools on a real control plane, and delete their VMs. The number of sets and
pools stays the same, so a figure that grows is a leak. The exit code is 1 if one grows, or if the log has an error.
"""

import argparse
import json
import re
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from itertools import count
from pathlib import Path

from benchmarks.cases.bursts import POOLS, SETS, Cluster, running_cluster
from benchmarks.controllers import running_controller, running_process
from benchmarks.objects import OBJECTS
from sandbox.admin import Rejected, Unanswered
from sandbox.processes import free_ports

PAUSE_S, SAMPLE_EVERY_S, RESTART_EVERY_S, WITHIN_S, QUIET_S = 0.8, 5.0, 150.0, 180.0, 30.0
ADDRESSES = ("--metrics-bind-address", "--health-probe-bind-address")
# A longer lease than usual: on a busy machine, a restart of the API server can take longer than the usual lease.
FLAGS = ("--lease-duration=60s", "--renew-deadline=45s", "--retry-period=5s", "--debug-endpoints")
HERDS = (SETS, POOLS) * 8
TEMPLATES = {SETS: "template", POOLS: "virtualMachineTemplate"}
SICK = 2  # the VMs of the first set and of the first pool fail again and again
SHARE, LEAST = 0.05, {"MiB": 3, "blocks": 5_000, "tasks": 5, "files": 5, "series": 20}  # the growth that counts as flat


def judge(values: Sequence[float], least: float) -> tuple[list[float], bool]:
    """Return the medians of the last three quarters, and whether they are flat. The first quarter is the warm-up.

    A figure that approaches a limit, as the memory of an allocator does, is flat too: then the growth from the third to
    the last quarter is at most half of the tolerance.
    """
    size = len(values) // 4
    second, third, last = (statistics.median(values[n * size : (n + 1) * size]) for n in (1, 2, 3))
    allowed = max(SHARE * second, least)
    return [second, third, last], last - second <= allowed or last - third <= allowed / 2


class Load:
    def __init__(self, api: Cluster) -> None:
        self._api, self._numbers, self._steps = api, count(), count()
        self._names = [self._create(index) for index in range(len(HERDS))]

    def step(self) -> None:
        """Change the next set or pool. A request may fail while an object goes."""
        step = next(self._steps)
        index = step % len(HERDS)
        herd, name = HERDS[index], self._names[index]
        with suppress(Unanswered, Rejected):
            match step // len(HERDS) % 4:
                case 0:
                    self._api.patch(herd.path(name), {"spec": {"replicas": step * 7 % 11}})
                case 1:
                    template = {"metadata": {"labels": {"step": str(step)}}}
                    self._api.patch(herd.path(name), {"spec": {TEMPLATES[herd]: template}})
                case 2:
                    for each in self._api.items(f"{herd.children_path}?labelSelector=app%3D{name}")[:2]:
                        self._api.delete(f"{herd.children_path}/{each['metadata']['name']}")
                case 3:
                    self._api.delete(herd.path(name), "Foreground" if step % 3 else "Background")
                    self._names[index] = self._create(index)

    def empty(self) -> list[str]:
        """Delete everything, and return what is left after WITHIN_S."""
        paths = [path for herd in (SETS, POOLS) for path in (herd.path(), herd.children_path)]
        for path in paths:
            self._api.send("DELETE", path)
        with suppress(RuntimeError):
            self._api.until(lambda: not any(map(self._api.items, paths)), "all is gone", within_s=WITHIN_S)
        return [f"{path}/{each['metadata']['name']} is left" for path in paths for each in self._api.items(path)]

    def _create(self, index: int) -> str:
        herd, name = HERDS[index], f"herd-{next(self._numbers)}"
        text = json.dumps(OBJECTS[herd.document.replace("burst", "soak")]).replace("NAME", name)
        self._api.create(herd.path(), json.loads(text.replace("BEHAVIOR", "crash-loop" if index < SICK else "normal")))
        return name


def read(address: str) -> str:
    return str(urllib.request.urlopen(f"http://127.0.0.1:{address}", timeout=10).read().decode())


def sample(metrics_port: int, health_port: int) -> dict[str, float]:
    """Return the figures of the controller. Raises OSError if it does not answer."""
    metrics = read(f"{metrics_port}/metrics")
    tasks, memory = (read(f"{health_port}/debug/{page}") for page in ("tasks", "memory"))

    def total(name: str) -> float:
        return sum(map(float, re.findall(rf"^{name}(?:{{.*}})? (\S+)$", metrics, re.MULTILINE)))

    return {
        "MiB": total("process_resident_memory_bytes") / 2**20,
        "blocks": float(re.findall(r"allocated blocks: (\d+)", memory)[0]),
        "tasks": len(re.findall(r"^\S", tasks, re.MULTILINE)),
        "files": total("process_open_fds"),
        "series": len(re.findall(r"^\w", metrics, re.MULTILINE)),
        "left": total("vmherd_store_objects") + total("workqueue_depth"),
    }


def run(directory: Path, minutes: float) -> list[str]:
    """Return what grows, what is left, and the errors in the log."""
    with running_cluster(directory) as cluster, ExitStack() as stack:
        simulator = [sys.executable, "-m", "sandbox.simulator", "--kubeconfig", str(cluster.plane.kubeconfig)]
        stack.enter_context(running_process(simulator, cluster.plane.logs / "simulator.log"))
        log, ports = directory / "controller.log", free_ports(2)
        flags = *FLAGS, *(f"{flag}=127.0.0.1:{port}" for flag, port in zip(ADDRESSES, ports, strict=True))
        program = stack.enter_context(running_controller(cluster.kubeconfig, log, flags=flags))
        program.wait_for('"working"', within_s=WITHIN_S)
        load, samples = Load(cluster), list[dict[str, float]]()
        started = sampled = restarted = time.monotonic()
        while (now := time.monotonic()) < started + minutes * 60:
            load.step()
            time.sleep(PAUSE_S)
            if now > sampled + SAMPLE_EVERY_S:
                sampled = now
                with suppress(OSError):  # on a busy machine, an answer can take too long
                    samples.append(sample(*ports))
            if now > restarted + RESTART_EVERY_S:
                cluster.plane.restart_apiserver()
                restarted = now
        problems = load.empty()
        time.sleep(QUIET_S)
        left = sample(*ports)["left"]
        problems += re.findall(r'^.*"level": ?"(?:error|critical)".*$', log.read_text(), re.MULTILINE)
    problems += [f"{left:g} objects and keys are left after all was deleted"] if left else []
    print(f"{len(samples)} samples\n\n| figure | second quarter | third | last |\n{'| --- ' * 4}|")
    for name, least in LEAST.items():
        medians, is_flat = judge([each[name] for each in samples], least)
        print(f"| {name} | {' | '.join(f'{value:,.6g}' for value in medians)} |")
        problems += [] if is_flat else [f"{name} grows"]
    return problems


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="make soak")
    parser.add_argument("--minutes", type=float, default=60.0, help="duration of the load (default 60)")
    with tempfile.TemporaryDirectory(prefix="vmherd-soak-") as scratch:
        sys.exit("\n".join(run(Path(scratch), parser.parse_args().minutes)) or None)
