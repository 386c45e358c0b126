"""The baseline: a minimal loop that sends the same create and delete requests as the controller, fifty at a time.

Bodies are encoded in advance, and responses are discarded. The loop's time is the cost of the API server and the HTTP
client. With `--watch`, it also reads a watch of the objects and discards it, as a controller must.

    python -m benchmarks.bare_loop KUBECONFIG NAMESPACE COUNT [PLURAL] [--watch]    prints one JSON object
"""

import argparse
import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, nullcontext

import aiohttp
import msgspec
import uvloop

from benchmarks.objects import BURST, OBJECTS
from informers.http.configuration import load_credentials

IN_FLIGHT = 50
VMIS = "virtualmachineinstances"
KINDS = {
    VMIS: ("burst set", "template", "VirtualMachineInstance", {"vmherd.dev/template-hash": "0123456789"}),
    "virtualmachines": (
        *("burst pool", "virtualMachineTemplate", "VirtualMachine"),
        {"kubevirt.io/vm-pool-revision-name": f"{BURST}-1"},
    ),
}


def body(plural: str, name: str) -> bytes:
    """Return an object as the controller creates it, but without an owner: the garbage collector would delete it."""
    owner, field, kind, labels = KINDS[plural]
    template = OBJECTS[owner]["spec"][field]
    metadata = {"name": name, "labels": template["metadata"]["labels"] | labels}
    document = {"apiVersion": "kubevirt.io/v1", "kind": kind, "metadata": metadata, "spec": template["spec"]}
    return msgspec.json.encode(document)


async def main(kubeconfig: str, namespace: str, count: int, plural: str, *, watch: bool) -> None:
    credentials = await load_credentials(kubeconfig)
    collection = f"{credentials.host}/apis/kubevirt.io/v1/namespaces/{namespace}/{plural}"
    names = [f"bare-{number:05d}" for number in range(count)]
    connector = aiohttp.TCPConnector(limit=IN_FLIGHT + watch, ssl=credentials.ssl)
    async with aiohttp.ClientSession(connector=connector, trust_env=False) as session:

        async def create(name: str) -> None:
            headers = {"Content-Type": "application/json"}
            async with session.post(collection, data=body(plural, name), headers=headers) as answer:
                await answer.read()
                answer.raise_for_status()

        async def delete(name: str) -> None:
            async with session.delete(f"{collection}/{name}", json={"propagationPolicy": "Background"}) as answer:
                await answer.read()
                answer.raise_for_status()

        async with watching(session, collection) if watch else nullcontext():
            result = {"create": await timed(create, names), "delete": await timed(delete, names)}
    print(json.dumps(result))


@asynccontextmanager
async def watching(session: aiohttp.ClientSession, collection: str) -> AsyncIterator[None]:
    async def discard(answer: aiohttp.ClientResponse) -> None:
        while await answer.content.readany():
            pass

    no_limit = aiohttp.ClientTimeout(total=None)
    async with session.get(collection, params={"watch": "true"}, timeout=no_limit) as answer:
        answer.raise_for_status()
        reader = asyncio.create_task(discard(answer))
        yield
        reader.cancel()


async def timed(act: Callable[[str], Awaitable[None]], names: Iterable[str]) -> dict[str, float]:
    """Call `act` for every name, IN_FLIGHT calls at a time. Return the wall time and the CPU time of this process."""
    todo = iter(names)

    async def worker() -> None:
        for name in todo:
            await act(name)

    wall, cpu = time.perf_counter(), time.process_time()
    async with asyncio.TaskGroup() as group:
        for _ in range(IN_FLIGHT):
            group.create_task(worker())
    return {"wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bare_loop")
    parser.add_argument("kubeconfig")
    parser.add_argument("namespace")
    parser.add_argument("count", type=int)
    parser.add_argument("plural", nargs="?", default=VMIS, choices=tuple(KINDS))
    parser.add_argument("--watch", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    given = arguments()
    # The controller uses uvloop if it is installed.
    uvloop.run(main(given.kubeconfig, given.namespace, given.count, given.plural, watch=given.watch))
