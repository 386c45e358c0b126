"""The same requests to the fake API server and to a kube-apiserver have the same answers and leave the same objects."""

import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import pytest

from controller.kubevirt.resources import VMIS, VMS
from controller.leaderelection.lease import LEASES
from informers.errors import StatusError
from informers.http.client import ApiClient, load_credentials, open_client
from informers.meta import ObjectKey
from informers.objects import PatchType
from sandbox.controlplane import ControlPlane
from tests.builders import REPLICASETS
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.requests import AnyResource, Document

pytestmark = [pytest.mark.cluster, pytest.mark.newest]

FINALIZER = "example.org/held"
OWNERS = [
    {"apiVersion": "example.org/v1", "kind": "Owner", "name": name, "uid": f"uid-of-{name}"} for name in ("one", "two")
]
"""The garbage collector does not know the kind of these owners. So it does not change the objects that they own."""

SPECS: dict[AnyResource, Document] = {
    VMS: {"runStrategy": "Halted", "template": {"spec": {"domain": {}}}},
    VMIS: {"domain": {}},
    REPLICASETS: {
        "replicas": 1,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"domain": {}}},
    },
    LEASES: {"holderIdentity": "a", "leaseTransitions": 1},
}
DEFAULT_STATUS: dict[AnyResource, Document] = {REPLICASETS: {"observedGeneration": -1}}
"""The default in the CRD of the sandbox."""

COMPARED = ("name", "labels", "annotations", "finalizers", "ownerReferences", "deletionGracePeriodSeconds")


class Recorder:
    """A client that records each answer in a form that is equal for both servers.

    `uid` and `version` are from the last answer. Later requests use them as preconditions.
    """

    def __init__(self, client: ApiClient | FakeApiServer, namespace: str, resource: AnyResource) -> None:
        self._client = client
        self._namespace = namespace
        self._resource = resource
        self._uids: list[str] = []
        self._versions: list[str] = []
        self.answers: list[object] = []
        self.uid = self.version = ""

    async def create(self, *, status: Document | None = None, **metadata: Any) -> None:
        document = {
            "apiVersion": self._resource.api_version,
            "kind": self._resource.kind,
            "metadata": {"name": "web", "namespace": self._namespace, **metadata},
            "spec": SPECS[self._resource],
        }
        document |= {} if status is None else {"status": status}
        await self._keep(self._client.create(self._resource, self._namespace, json.dumps(document).encode()))

    async def get(self) -> None:
        await self._keep(self._client.get(self._resource, self._key))

    async def patch(self, patch: Document | list[Document], subresource: str = "") -> None:
        how = {"content_type": PatchType.JSON if isinstance(patch, list) else PatchType.MERGE}
        body = json.dumps(patch).encode()
        await self._keep(self._client.patch(self._resource, self._key, body, **how, subresource=subresource))

    async def delete(self, **options: str) -> None:
        await self._keep(self._client.delete(self._resource, self._key, **options))

    @property
    def _key(self) -> ObjectKey:
        return ObjectKey(self._namespace, "web")

    async def _keep(self, request: Awaitable[bytes]) -> None:
        try:
            self.answers.append(self._comparable(json.loads(await request)))
        except StatusError as error:
            message = self._without_numbers(str(error))
            self.answers.append((type(error).__name__, error.code, error.reason, message))

    def _comparable(self, answer: Document) -> object:
        if answer["kind"] == "Status":
            uid = self._number(self._uids, answer["details"].pop("uid"))
            return (answer["status"], answer["details"], uid)
        meta = answer["metadata"]
        self.uid, self.version = meta["uid"], meta["resourceVersion"]
        times = [field for field in ("creationTimestamp", "deletionTimestamp") if meta.get(field)]
        same = {field: meta[field] for field in COMPARED if field in meta}
        if self._resource is not LEASES:
            same["generation"] = meta["generation"]
        numbers = (self._number(self._uids, self.uid), self._number(self._versions, self.version))
        return (same, times, numbers, answer["spec"], answer.get("status"))

    def _without_numbers(self, message: str) -> str:
        for values, name in ((self._uids, "UID"), (self._versions, "VERSION")):
            for value in values:
                message = message.replace(value, name)
        return message

    def _number(self, seen: list[str], value: str) -> int:
        """Replace a value, such as a UID, by a number: 1 for the first value, 2 for the second. These numbers are equal
        for both servers.
        """
        if value not in seen:
            seen.append(value)
        return seen.index(value)


Scene: TypeAlias = Callable[[Recorder], Awaitable[None]]


async def create_and_read(server: Recorder) -> None:
    await server.get()
    await server.create(labels={"app": "web"}, annotations={}, finalizers=[])
    await server.get()
    await server.create()


async def fields_that_only_the_server_sets(server: Recorder) -> None:
    await server.create(uid="made-up", creationTimestamp="2020-01-01T00:00:00Z", generation=7)
    await server.patch({"metadata": {"generation": 9, "creationTimestamp": "2020-01-01T00:00:00Z"}})
    await server.patch({"metadata": {"deletionTimestamp": "2020-01-01T00:00:00Z"}})


async def merge_patches(server: Recorder) -> None:
    await server.patch({"metadata": {"labels": {"a": "b"}}})
    await server.create(labels={"app": "web"})
    await server.patch({"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}})
    await server.patch({"metadata": {"labels": {"a": "b"}}})
    await server.patch({"metadata": {"labels": {"a": None, "app": None}}})
    await server.patch({"spec": {**SPECS[server._resource], **CHANGES[server._resource]}})
    await server.patch({"spec": CHANGES[server._resource]})
    await server.patch({})


async def merge_patches_of_lists(server: Recorder) -> None:
    await server.create(finalizers=[FINALIZER], ownerReferences=OWNERS)
    await server.patch({"metadata": {"finalizers": ["example.org/other", FINALIZER], "ownerReferences": OWNERS[1:]}})
    await server.patch({"metadata": {"finalizers": [], "ownerReferences": []}})


async def preconditions_of_merge_patches(server: Recorder) -> None:
    await server.create()
    uid, version = server.uid, server.version
    await server.patch({"metadata": {"uid": uid, "resourceVersion": version, "labels": {"a": "1"}}})
    await server.patch({"metadata": {"uid": uid, "resourceVersion": version, "labels": {"a": "2"}}})
    await server.patch({"metadata": {"uid": "another", "labels": {"a": "3"}}})
    await server.patch({"metadata": {"uid": "another", "resourceVersion": version, "labels": {"a": "4"}}})
    await server.patch({"metadata": {"uid": uid, "resourceVersion": "", "labels": {"a": "5"}}})
    await server.patch({"metadata": {"uid": uid, "resourceVersion": version}})
    await server.patch({"metadata": {"uid": "another"}})
    await server.patch({"metadata": {"uid": None, "resourceVersion": None, "labels": {"a": "6"}}})


async def json_patches(server: Recorder) -> None:
    await server.create(finalizers=[FINALIZER, "example.org/other"], ownerReferences=OWNERS, annotations={"a/b": "c"})
    await server.patch([{"op": "test", "path": "/metadata/uid", "value": server.uid}])
    await server.patch([{"op": "test", "path": "/metadata/uid", "value": "another"}])
    await server.patch([{"op": "test", "path": "/metadata/finalizers/7", "value": FINALIZER}])
    await server.patch([{"op": "remove", "path": "/metadata/finalizers/7"}])
    await server.patch([{"op": "remove", "path": "/metadata/nothing"}])
    await server.patch([{"op": "test", "path": "/metadata/annotations/a~1b", "value": "c"}])
    await server.patch([{"op": "replace", "path": "/metadata/annotations/a~1b", "value": "d"}])
    await server.patch([{"op": "add", "path": "/metadata/finalizers/-", "value": "example.org/third"}])
    await server.patch([{"op": "add", "path": "/metadata/labels", "value": {"app": "web"}}])
    await server.patch(
        [
            {"op": "test", "path": "/metadata/finalizers/0", "value": FINALIZER},
            {"op": "remove", "path": "/metadata/finalizers/0"},
            {"op": "test", "path": "/metadata/ownerReferences/1/uid", "value": "uid-of-two"},
            {"op": "remove", "path": "/metadata/ownerReferences/1"},
        ]
    )
    await server.patch([{"op": "remove", "path": "/metadata/ownerReferences/0"}])
    await server.patch(
        [{"op": "remove", "path": "/metadata/finalizers/0"}, {"op": "test", "path": "/metadata/name", "value": "x"}]
    )
    await server.get()


async def a_status_that_is_written(server: Recorder) -> None:
    await server.create(status={"replicas": 7})
    uid, version = server.uid, server.version
    await server.patch({"status": {"replicas": 2}})
    await server.patch(
        {"metadata": {"labels": {"a": "1"}}, "spec": {"paused": True}, "status": {"replicas": 3}}, "status"
    )
    await server.patch({"metadata": {"uid": "another"}, "status": {"replicas": 4}}, "status")
    await server.patch({"metadata": {"uid": uid, "resourceVersion": version}, "status": {"replicas": 5}}, "status")
    await server.patch({"metadata": {"resourceVersion": server.version}, "status": {"replicas": 4}}, "status")
    await server.patch({"metadata": {"labels": {"b": "2"}}, "status": {"replicas": 8}})
    await server.patch({"status": {"replicas": None}}, "status")
    await server.patch({"status": None}, "status")


async def a_status_without_a_subresource(server: Recorder) -> None:
    await server.create(status={"phase": "Pending"})
    await server.patch({"status": {"phase": "Running"}})
    await server.patch({"status": {"phase": "Running"}})
    await server.patch({"status": {"phase": "Failed"}}, "status")


async def deletion(server: Recorder) -> None:
    await server.delete()
    await server.create()
    await server.delete(uid="another")
    await server.delete(version="1")
    await server.delete(uid="another", version="1")
    await server.get()
    await server.delete(uid=server.uid, version=server.version, propagation="Background")
    await server.get()
    await server.create()


async def deletion_with_a_finalizer(server: Recorder) -> None:
    await server.create(finalizers=[FINALIZER])
    await server.delete(uid=server.uid)
    await server.get()
    await server.create()
    await server.delete()
    await server.delete(uid="another")
    await server.patch({"metadata": {"labels": {"a": "b"}}})
    await server.patch({"metadata": {"finalizers": [FINALIZER, "example.org/other"]}})
    await server.patch([{"op": "add", "path": "/metadata/finalizers/-", "value": "example.org/other"}])
    await server.patch({"metadata": {"deletionTimestamp": None}})
    await server.patch({"metadata": {"finalizers": None}})
    await server.get()
    await server.create()


async def deletion_in_the_foreground(server: Recorder) -> None:
    """Only the answer is compared, not the object.

    The garbage collector of the real server changes the object later.
    """
    await server.create(finalizers=[FINALIZER])
    await server.delete(propagation="Foreground")


async def deletion_of_orphans(server: Recorder) -> None:
    await server.create(finalizers=[FINALIZER])
    await server.delete(propagation="Orphan")


CHANGES: dict[AnyResource, Document] = {
    VMS: {"runStrategy": "Always"},
    VMIS: {"nodeName": "a"},
    REPLICASETS: {"replicas": 3},
    LEASES: {"holderIdentity": "b"},
}
ANYWHERE: tuple[Scene, ...] = (
    create_and_read,
    fields_that_only_the_server_sets,
    merge_patches,
    merge_patches_of_lists,
    preconditions_of_merge_patches,
    json_patches,
    deletion,
    deletion_with_a_finalizer,
    deletion_in_the_foreground,
    deletion_of_orphans,
)
TABLE = [
    *((scene, resource) for scene in ANYWHERE for resource in (VMIS, REPLICASETS, LEASES)),
    (a_status_that_is_written, REPLICASETS),
    (a_status_without_a_subresource, VMIS),
]


@pytest.mark.parametrize(
    ("scene", "resource"), TABLE, ids=lambda each: getattr(each, "__name__", getattr(each, "plural", ""))
)
async def test_the_fake_answers_as_the_real_server_does(
    scene: Scene, resource: AnyResource, control_plane: ControlPlane, namespace: str
) -> None:
    server = FakeApiServer(latency_s=0, has_status=[REPLICASETS, VMS], default_status=DEFAULT_STATUS)
    fake = Recorder(server, namespace, resource)
    await scene(fake)
    credentials = await load_credentials(str(control_plane.kubeconfig))
    async with open_client(credentials, user_agent="vmherd-tests") as client:
        real = Recorder(client, namespace, resource)
        await scene(real)
    assert len(fake.answers) == len(real.answers)
    assert [pair for pair in zip(fake.answers, real.answers, strict=True) if pair[0] != pair[1]] == []
