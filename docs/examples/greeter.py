"""A complete controller with `informers`: each Greeting gets a ConfigMap with the same name and the greeting's text.

Apply greetings-crd.yaml, then run `.venv/bin/python docs/examples/greeter.py [KUBECONFIG]`.
"""

import asyncio
import json
import sys

from msgspec import Struct

import informers as k8s
from informers import ApiClient, ObjectKey, ObjectMeta, Resource, SharedInformer

GROUP, VERSION, KIND = "example.vmherd.dev", "v1", "Greeting"


class GreetingSpec(Struct, frozen=True):
    text: str = ""


class Greeting(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: GreetingSpec = GreetingSpec()


class ConfigMap(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] | None = None


GREETINGS = Resource(Greeting, group=GROUP, version=VERSION, plural="greetings", kind=KIND)
CONFIG_MAPS = Resource(ConfigMap, group="", version="v1", plural="configmaps", kind="ConfigMap")


async def reconcile(key: ObjectKey, client: ApiClient, greetings: SharedInformer, config_maps: SharedInformer) -> None:
    """Send at most one request for a Greeting. The garbage collector deletes the ConfigMap of a deleted Greeting."""
    greeting, found = greetings.store.get(key), config_maps.store.get(key)
    if greeting is None or greeting.metadata.deletion_timestamp is not None:
        return
    uid, text = greeting.metadata.uid, greeting.spec.text
    if found is None:
        owner = {"apiVersion": f"{GROUP}/{VERSION}", "kind": KIND, "name": key.name, "uid": uid, "controller": True}
        metadata = {"name": key.name, "ownerReferences": [owner]}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"text": text}}
        await client.create(CONFIG_MAPS, key.namespace, json.dumps(body).encode())
        return
    controller = k8s.controller_of(found.metadata)
    if controller is not None and controller.uid == uid and (found.data or {}).get("text") != text:
        # The UID is a precondition: the server answers Conflict for another ConfigMap of this name.
        patch = {"metadata": {"uid": found.metadata.uid}, "data": {"text": text}}
        await client.patch(CONFIG_MAPS, key, json.dumps(patch).encode(), content_type=k8s.PatchType.MERGE)


def key_of(change: k8s.Change) -> ObjectKey:
    """Return the key of the changed object. A Greeting and its ConfigMap have the same name, and so the same key."""
    return (change.last_known if isinstance(change, k8s.Removed) else change.new).metadata.key


async def run(kubeconfig: str = "") -> None:
    credentials = await k8s.load_credentials(kubeconfig)
    async with k8s.open_client(credentials, user_agent="greeter") as client, asyncio.TaskGroup() as group:
        queue: k8s.WorkQueue[ObjectKey] = k8s.WorkQueue("greetings")
        greetings, config_maps = SharedInformer(GREETINGS, client), SharedInformer(CONFIG_MAPS, client)
        for informer in (greetings, config_maps):
            informer.add_handler(lambda change: queue.add(key_of(change)))
            group.create_task(informer.run())
            await informer.synced.wait()
        async for key in queue:
            try:
                await reconcile(key, client, greetings, config_maps)
                queue.forget(key)
            except k8s.ApiError as error:
                print(f"{key}: {error}; again in {queue.add_rate_limited(key):.3f} s", flush=True)
            finally:
                queue.done(key)


if __name__ == "__main__":
    asyncio.run(run(*sys.argv[1:2]))
