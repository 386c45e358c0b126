"""Serves KubeVirt's aggregated API `subresources.kubevirt.io/v1` and its webhooks, and stores nothing.

Only kube-apiserver, with its front proxy certificate, may send subresource requests. It authorizes them.
"""

import asyncio
import json
import ssl
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import msgspec
import structlog
import trustme
from aiohttp import web

from informers.errors import ApiError, Conflict, Invalid, NotFound
from informers.http.client import ApiClient
from informers.meta import ObjectKey
from informers.objects import PatchType
from informers.resource import Resource
from sandbox.launchers.pods import PODS
from sandbox.virt_api import admission, registration
from sandbox.virt_api.admission import Verdict, mutate, validate
from sandbox.virt_api.lifecycle import (
    PAUSES,
    SUBRESOURCES,
    VMI,
    Answer,
    Failure,
    JsonPatch,
    Request,
    bad_request,
    conflict,
    decide,
    decide_pause,
    internal_error,
    not_found,
)
from sandbox.virt_api.registration import RETRY_S, apply
from sandbox.vmis import VMIS
from sandbox.vms import VMS

log = structlog.get_logger()

UNREGISTER_TIMEOUT_S = 5.0

REQUESTHEADER = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
"""The ConfigMap in which kube-apiserver publishes the CA of its front proxy certificate."""

LARGEST_REVIEW = 8 << 20
"""The largest size of a request in bytes: an admission review contains the object twice."""

TEST_FAILED = "jsonpatch test operation does not apply"


async def run(client: ApiClient, *, webhooks: bool) -> None:
    """Serve virt-api, and with `webhooks` KubeVirt's webhooks, until cancelled. `client` is an administrator."""
    authority = trustme.CA(organization_name="vmherd sandbox virt-api")
    front_proxy_ca = await _front_proxy_ca(client)
    async with (
        _serving(client, authority, front_proxy_ca) as port,
        _registered(client, authority, port, webhooks=webhooks),
    ):
        await asyncio.Event().wait()


async def _front_proxy_ca(client: ApiClient) -> str:
    while True:
        try:
            data = json.loads(await client.request("GET", REQUESTHEADER))["data"]
            return str(data["requestheader-client-ca-file"])
        except (ApiError, KeyError) as error:
            log.debug("kube-apiserver does not publish its front proxy CA yet", why=str(error))
            await asyncio.sleep(RETRY_S)


@asynccontextmanager
async def _serving(client: ApiClient, authority: trustme.CA, front_proxy_ca: str) -> AsyncIterator[int]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=front_proxy_ca)
    # kube-apiserver presents its front proxy certificate for an aggregated API, and no certificate for a webhook.
    context.verify_mode = ssl.CERT_OPTIONAL
    authority.issue_cert(registration.HOST, "127.0.0.1").configure_cert(context)
    runner = web.AppRunner(_application(client), access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def _application(client: ApiClient) -> web.Application:
    root = registration.ROOT
    served = ((VMS.plural, each) for each in SUBRESOURCES), ((VMIS.plural, each) for each in PAUSES)
    names = tuple("/".join(each) for group in served for each in group)
    virt_api = VirtApi(client)
    application = web.Application(middlewares=[_authenticated], client_max_size=LARGEST_REVIEW)
    application.router.add_get(f"/apis/{registration.GROUP}", _document(registration.group()))
    application.router.add_get(root, _document(registration.resources(names)))
    for plural, known, handler in ((VMS.plural, SUBRESOURCES, virt_api.put), (VMIS.plural, PAUSES, virt_api.put_pause)):
        path = f"{root}/namespaces/{{namespace}}/{plural}/{{name}}/{{subresource:{'|'.join(known)}}}"
        application.router.add_put(path, handler)
    application.router.add_post("/mutate", _mutate)
    application.router.add_post("/validate", _validate)
    application.router.add_post("/evict", virt_api.evict)
    return application


@web.middleware
async def _authenticated(request: web.Request, handler: Any) -> web.StreamResponse:
    """Reject a write without kube-apiserver's front proxy certificate. Discovery needs no certificate."""
    is_ours = request.transport is not None and bool(request.transport.get_extra_info("peercert"))
    if request.method == "PUT" and not is_ours:
        return _answer(Failure(403, "the request did not come from kube-apiserver"))
    if request.method == "PUT" and "*/*" not in request.headers.get("Accept", "*/*"):
        # virt-api declares no media type for this answer, so it rejects clients that accept only JSON.
        return web.Response(status=406, text="406: Not Acceptable")
    response: web.StreamResponse = await handler(request)
    return response


def _document(document: dict[str, Any]) -> Any:
    async def handler(_: web.Request) -> web.Response:
        return web.json_response(document)

    return handler


async def _mutate(request: web.Request) -> web.Response:
    review = json.loads(await request.read())
    now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    return web.json_response(mutate(review, now=now, new_uuid=lambda: str(uuid.uuid4())))


async def _validate(request: web.Request) -> web.Response:
    return web.json_response(validate(json.loads(await request.read())))


class VirtApi:
    def __init__(self, client: ApiClient) -> None:
        self._client = client

    async def put(self, request: web.Request) -> web.Response:
        """Patch the VM and return status code 202, or a Status object with the error."""
        body = await request.read()
        try:
            options = msgspec.json.decode(body, type=Request) if body.strip() else Request()
        except msgspec.DecodeError as error:
            return _answer(bad_request(f"Can not unmarshal Request body to struct, error: {error}"))
        failure = await self._execute(request.match_info["subresource"], options, _key_in(request))
        return web.Response(status=202) if failure is None else _answer(failure)

    async def put_pause(self, request: web.Request) -> web.Response:
        """Pause or unpause the VMI. Return status code 200 without a body, as virt-api does, or an error."""
        key = _key_in(request)
        try:
            vmi = await self._found(VMIS, key)
            if vmi is None:
                return _answer(not_found(key.name, VMI))
            decision = decide_pause(request.match_info["subresource"], await self._found(VMS, key), vmi)
            failure = await self._carry_out(decision, key)
        except ApiError as error:
            failure = internal_error(str(error))
        return web.Response() if failure is None else _answer(failure)

    async def _execute(self, subresource: str, options: Request, key: ObjectKey) -> Failure | None:
        try:
            vm = await self._found(VMS, key)
        except ApiError as error:
            return internal_error(f"unable to retrieve vm [{key.name}]: {error}")
        if vm is None:
            return not_found(key.name)
        try:
            decision = decide(subresource, options, vm, await self._found(VMIS, key))
            return await self._carry_out(decision, key, dry_run=bool(options.dry_run))
        except (Conflict, Invalid) as error:
            # kube-apiserver answers 422 if a test of the patch failed, because the VM has just changed.
            text = str(error)
            is_stale = isinstance(error, Conflict) or TEST_FAILED in text or "testing path" in text
            return conflict(key.name, text) if is_stale else internal_error(text)
        except ApiError as error:
            return internal_error(str(error))

    async def _carry_out(self, decision: Answer, key: ObjectKey, *, dry_run: bool = False) -> Failure | None:
        if isinstance(decision, Failure):
            return decision
        for patch in decision:
            await self._patch(patch, key, dry_run=dry_run)
        return None

    async def _found(self, resource: Resource[Any], key: ObjectKey) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = json.loads(await self._client.get(resource, key))
        except NotFound:
            return None
        return found

    async def _patch(self, patch: JsonPatch, key: ObjectKey, *, dry_run: bool) -> None:
        resource, subresource = (VMIS, "") if patch.target == "vmi" else (VMS, patch.target.partition("/")[2])
        await self._client.request(
            "PATCH",
            resource.path(key.namespace, key.name, subresource),
            params={"dryRun": "All"} if dry_run else None,
            body=msgspec.json.encode(patch.operations),
            content_type=PatchType.JSON,
        )

    async def evict(self, request: web.Request) -> web.Response:
        review = json.loads(await request.read())
        asked = review["request"]
        try:
            verdict = await self._verdict(asked["namespace"], asked["name"], dry_run=bool(asked.get("dryRun")))
        except ApiError as error:
            verdict = Verdict(f"kubevirt failed marking the vmi for eviction: {error}")
        return web.json_response(admission.answer_eviction(review, verdict.denial))

    async def _verdict(self, namespace: str, name: str, *, dry_run: bool) -> Verdict:
        try:
            pod = json.loads(await self._client.get(PODS, ObjectKey(namespace, name)))
            key = ObjectKey(namespace, (pod["metadata"].get("annotations") or {}).get("kubevirt.io/domain", ""))
            if not key.name:
                return Verdict()
            vmi = json.loads(await self._client.get(VMIS, key))
        except NotFound:
            return Verdict()
        verdict = admission.judge_eviction(pod, vmi)
        if verdict.is_marked and not dry_run:
            status = {"evacuationNodeName": pod["spec"]["nodeName"]}
            change = msgspec.json.encode({"metadata": {"uid": vmi["metadata"]["uid"]}, "status": status})
            await self._client.patch(VMIS, key, change, content_type=PatchType.MERGE)
        return verdict


def _key_in(request: web.Request) -> ObjectKey:
    return ObjectKey(request.match_info["namespace"], request.match_info["name"])


def _answer(failure: Failure) -> web.Response:
    return web.json_response(failure.document(), status=failure.code)


@asynccontextmanager
async def _registered(client: ApiClient, authority: trustme.CA, port: int, *, webhooks: bool) -> AsyncIterator[None]:
    """Register the server while the block runs. A registration that stayed would block all writes of VMs."""
    objects = registration.objects(port, authority.cert_pem.bytes())
    registrations = objects["api"] | (objects["webhooks"] if webhooks else {})
    for path, document in (objects["service"] | registrations).items():
        await apply(client, path, document)
    log.info("virt-api is registered", port=port, webhooks=webhooks)
    try:
        yield
    finally:
        for path in registrations:
            await _unregister(client, path, port)


async def _unregister(client: ApiClient, path: str, port: int) -> None:
    try:
        registered = await client.request("GET", path, timeout_s=UNREGISTER_TIMEOUT_S)
        if registration.names_port(json.loads(registered), port):
            await client.request("DELETE", path, timeout_s=UNREGISTER_TIMEOUT_S)
    except ApiError as error:
        log.debug("a registration of virt-api is not removed", path=path, why=str(error))
