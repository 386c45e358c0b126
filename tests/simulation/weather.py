"""The acts of a story that no user does: nodes, controllers, network and API server."""

from datetime import timedelta

from tests.simulation.faults import Fault
from tests.simulation.replica import Replica
from tests.simulation.story import BUSY_UNTIL_S
from tests.simulation.world import World


class Weather:
    def __init__(self, world: World) -> None:
        self._world = world

    def _lose_node(self, kind: str, name: str, node: str) -> None:
        for kubevirt in self._world.kubevirts.values():
            kubevirt.lose_node(node)

    def _return_node(self, kind: str, name: str, node: str, guests_died: bool) -> None:
        for kubevirt in self._world.kubevirts.values():
            kubevirt.return_node(node, guests_died=guests_died)

    def _crash(self, kind: str, name: str, number: int, down_s: float) -> None:
        self._replica(number).crash(down_s)

    def _crash_at_step(self, kind: str, name: str, number: int, steps: int, down_s: float) -> None:
        self._replica(number).crash_after(steps, down_s, until=BUSY_UNTIL_S)

    def _suspend(self, kind: str, name: str, number: int, seconds: float, sleeps: bool = False) -> None:
        self._replica(number).suspend(seconds, sleeps=sleeps)

    def _terminate(self, kind: str, name: str, number: int) -> None:
        self._replica(number).terminate()

    def _fault(self, kind: str, lasts_s: float, rate: float, target: str) -> None:
        now, network, server = self._world.loop.time(), self._world.network, self._world.server
        match kind:
            case "clock":
                self._replica(int(target)).clock_is_off += timedelta(seconds=lasts_s * rate)
            case "silent":
                for stream in network.streams:
                    if stream.resource.plural == target:
                        stream.silence()
            case "reset" | "expired":
                server.compact() if kind == "expired" else None
                network.break_streams()
            case "older":
                server.fall_behind(now + lasts_s)
                network.break_streams()
                self._world.faults.add(Fault(kind, now, now + lasts_s, rate))
            case _:
                self._world.faults.add(Fault(kind, now, now + lasts_s, rate, target))
        if kind == "stale":
            network.later(lasts_s + 0.01, server.catch_up)

    def _replica(self, number: int) -> Replica:
        return self._world.replicas[number % len(self._world.replicas)]
