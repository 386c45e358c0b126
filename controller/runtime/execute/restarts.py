"""Requests restarts and pauses through a subresource, and detects that the cluster does not serve the subresource.

An aggregated API server, such as KubeVirt's virt-api, serves the subresource. The API server answers 404 if no such
server is registered, and 503 if the registered server cannot be reached. After such an answer, no further request is
sent for `REMEMBERED_S` seconds. So reconciliations of many owners do not load the API server.
"""

import asyncio
from typing import Final

from controller.kubevirt.resources import PAUSE
from controller.kubevirt.vmis import is_paused
from controller.runtime.actions import AnyResource, Done, Missing, Outcome, Pause, Rejected, Restart, Unknown, Unserved
from controller.runtime.execute.deletes import NO_JUDGE, Judge, judged_error, member_error
from controller.runtime.result import UNSERVED_S
from informers.errors import ApiError, NotFound, ServerError
from informers.meta import ObjectMeta, is_controlled_by
from informers.objects import ObjectClient, read_meta

REMEMBERED_S: Final = UNSERVED_S - 10
UNAVAILABLE: Final = 503


class Restarts:
    def __init__(self, client: ObjectClient, judge: Judge = NO_JUDGE) -> None:
        self._client = client
        self._judge = judge
        self._unserved: dict[AnyResource, tuple[float, ApiError]] = {}
        """For each resource that is not served: the time until which no request is sent, and the last error."""

    async def request(self, action: Restart) -> Outcome:
        """Request the restart if the instance still runs. Raise ApiError."""
        found = await self._read(action, action.instance)
        if not isinstance(found, tuple):
            return found
        instance, answer = found
        is_same = instance.uid == action.instance_uid and is_controlled_by(instance, action.uid)
        if not is_same or instance.deletion_timestamp is not None:
            return Missing(action)
        problem = await member_error(self._client, action, {action.instance: answer}, self._judge)
        return Rejected(action, problem) if problem is not None else await self._ask(action)

    async def pause(self, action: Pause) -> Outcome:
        """Pause or unpause the VMI, if it is not so already. Raise ApiError."""
        found = await self._read(action, action.resource)
        if not isinstance(found, tuple):
            return found
        meta, answer = found
        if meta.uid != action.uid or meta.deletion_timestamp is not None:
            return Missing(action)
        if is_paused(action.resource.decode(answer)) is (action.subresource == PAUSE):
            return Done(action, meta.resource_version)
        problem = await judged_error(self._client, action, self._judge)
        return Rejected(action, problem) if problem is not None else await self._ask(action)

    async def _read(self, action: Restart | Pause, resource: AnyResource) -> tuple[ObjectMeta, bytes] | Outcome:
        """Return the instance on the server, or the outcome if no request is to be sent."""
        until, recent = self._unserved.get(action.requests, (0.0, None))
        if recent is not None and asyncio.get_running_loop().time() < until:
            return Unserved(action, recent)
        try:
            answer = await self._client.get(resource, action.key)
            return read_meta(answer), answer
        except NotFound:
            return Missing(action)
        except ApiError as error:
            # Only the read failed, so nothing was requested.
            return Rejected(action, error)

    async def _ask(self, action: Restart | Pause) -> Outcome:
        """Send the request. The answer has no resourceVersion, so the object is read again for the next plan."""
        try:
            await self._client.update(action.requests, action.key, b"{}", subresource=action.subresource)
        except (NotFound, ServerError) as error:
            if isinstance(error, NotFound) and not await self._exists(action):
                return Missing(action)
            if isinstance(error, ServerError) and error.code != UNAVAILABLE:
                raise
            self._unserved[action.requests] = (asyncio.get_running_loop().time() + REMEMBERED_S, error)
            return Unserved(action, error)
        try:
            return Done(action, read_meta(await self._client.get(action.resource, action.key)).resource_version)
        except ApiError as error:
            return Unknown(action, error)

    async def _exists(self, action: Restart | Pause) -> bool:
        try:
            return read_meta(await self._client.get(action.resource, action.key)).uid == action.uid
        except NotFound:
            return False
