"""The start of the program, against the replay server."""

import asyncio
from collections import Counter
from pathlib import Path

from benchmarks.cases.fleets import Replay, running_replay
from benchmarks.fleet import Size
from controller import app
from controller.config.settings import Config


def lists(replay: Replay) -> int:
    """The number of lists and watches of VMIs that the server has seen."""
    seen = Counter(replay.ask("report")["requests"])
    return seen["list virtualmachineinstances"] + seen["watch virtualmachineinstances"]


async def test_the_program_is_frozen_before_the_first_lists_and_the_cache_after_them(tmp_path: Path):
    stop, seen = asyncio.Event(), []
    with running_replay(tmp_path, Size(sets=2, vmis_of_set=3, pools=1, vms_of_pool=2)) as replay:
        config = Config(
            kubeconfig=str(replay.kubeconfig),
            leader_elect=False,
            metrics_bind_address=None,
            health_probe_bind_address=None,
        )

        def synced() -> None:
            seen.append(("synced", lists(replay)))
            stop.set()

        async with asyncio.timeout(60):
            await app.serve(config, stop, built=lambda: seen.append(("built", lists(replay))), synced=synced)
    assert seen == [("built", 0), ("synced", 1)]
