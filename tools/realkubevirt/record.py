"""Records what KubeVirt does with the VM and VMI `vm` and their migrations, as in `tests/recordings`."""

import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from sandbox.kubectl import kubectl_path
from tests.cluster import Kubectl

KINDS = ("virtualmachines", "virtualmachineinstances", "virtualmachineinstancemigrations")
DISK_KINDS = ("datavolumes", "persistentvolumeclaims")


class Recorder:
    def __init__(self, kubectl: Kubectl, about: str, kinds: Sequence[str] = KINDS) -> None:
        self._about = about
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._specs: dict[str, Any] = {}
        self._before = [self._without_repeats(item) for kind in kinds for item in kubectl.json("get", kind)["items"]]
        self._known = {each["metadata"]["uid"] for each in self._before}
        self._actions: list[dict[str, Any]] = []
        self._events: list[dict[str, Any]] = []

    def act(self, what: str, action: Callable[[], object]) -> None:
        action()
        self._actions.append({"t": self._now(), "action": what})

    def write(self, path: Path) -> None:
        parts = [f'"about":{json.dumps(self._about)}']
        for name, items in (("before", self._before), ("actions", self._actions), ("events", self._events)):
            lines = ",\n".join(json.dumps(item, separators=(",", ":"), sort_keys=True) for item in items)
            parts.append(f'"{name}":[\n{lines}\n]' if items else f'"{name}":[]')
        path.write_text("{" + ",\n".join(parts) + "}\n")

    def note(self, event: dict[str, Any]) -> None:
        with self._lock:
            item = self._without_repeats(event["object"])
            uid = item["metadata"]["uid"]
            if event["type"] == "ADDED" and uid in self._known:
                return  # the watch begins with the objects that exist
            self._known.add(uid)
            self._events.append({"t": self._now(), "type": event["type"], "object": item})

    def _now(self) -> float:
        return round(time.monotonic() - self._began, 3)

    def _without_repeats(self, item: dict[str, Any]) -> dict[str, Any]:
        """The object without `managedFields`, and without a spec that is the same as before."""
        item["metadata"].pop("managedFields", None)
        uid, spec = item["metadata"]["uid"], item["spec"]
        same = self._specs.get(uid) == spec
        self._specs[uid] = spec
        return {name: value for name, value in item.items() if name != "spec" or not same}


@contextmanager
def recording(kubectl: Kubectl, about: str, kinds: Sequence[str] = KINDS) -> Iterator[Recorder]:
    recorder = Recorder(kubectl, about, kinds)
    with ExitStack() as watches:
        for kind in kinds:
            watches.enter_context(_watch(kubectl, kind, recorder.note))
        yield recorder


@contextmanager
def _watch(kubectl: Kubectl, kind: str, note: Callable[[dict[str, Any]], None]) -> Iterator[None]:
    command = [kubectl_path(), "get", kind, "--watch", "--output-watch-events", "-o", "json"]
    arguments = [f"--kubeconfig={kubectl.kubeconfig}", f"--namespace={kubectl.namespace}"]
    with subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, text=True) as process:
        reader = threading.Thread(target=_read, args=(process, note))
        reader.start()
        try:
            time.sleep(1)  # the watch has no sign of its beginning
            yield
        finally:
            process.terminate()
            reader.join()


def _read(process: subprocess.Popen[str], note: Callable[[dict[str, Any]], None]) -> None:
    for line in process.stdout or ():
        note(json.loads(line))
