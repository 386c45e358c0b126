"""Requests restarts through a subresource, and detects that the cluster does not serve the subresource.

An aggregated API server, such as KubeVirt's virt-api, serves the subresource. The API server answers 404 if no such
server is registered, and 503 if the registered server cannot be reached. After such an answer, no further request is
sent for `REMEMBERED_S` seconds. So reconciliations of many owners do not load the API server.
"""

import asyncio
from typing import Final

from controller.runtime.actions import AnyResource, Done, Missing, Outcome, Rejected, Restart, Unknown, Unserved
from controller.runtime.execute.deletes import NO_JUDGE, Judge, member_error
from controller.runtime.result import UNSERVED_S
from informers.errors import ApiError, NotFound, ServerError
from informers.meta import is_controlled_by
from informers.objects import ObjectClient, read_meta

REMEMBERED_S: Final = UNSERVED_S - 10
"""A pause in seconds after an answer 404 or 503. During the pause, no restart is requested."""

UNAVAILABLE: Final = 503


class Restarts:
    def __init__(self, client: ObjectClient, judge: Judge = NO_JUDGE) -> None:
        self._client = client
        self._judge = judge
        self._unserved: dict[AnyResource, tuple[float, ApiError]] = {}
        """For each resource that is not served: the time until which no request is sent, and the last error."""

    async def request(self, action: Restart) -> Outcome:
        """Request the restart if the instance still runs. Raise ApiError if the server rejects the request.

        The answer has no resourceVersion, so the object is read again: the next plan waits until the cache shows the
        request.
        """
        if (recent := self._recent_error(action)) is not None:
            return Unserved(action, recent)
        try:
            answer = await self._client.get(action.instance, action.key)
            instance = read_meta(answer)
        except NotFound:
            return Missing(action)
        except ApiError as error:
            # Only the read failed, so no restart was requested.
            return Rejected(action, error)
        is_same = instance.uid == action.instance_uid and is_controlled_by(instance, action.uid)
        if not is_same or instance.deletion_timestamp is not None:
            return Missing(action)
        found = {action.instance: answer}
        if (problem := await member_error(self._client, action, found, self._judge)) is not None:
            return Rejected(action, problem)
        try:
            await self._client.update(action.requests, action.key, b"{}", subresource=action.subresource)
        except NotFound as error:
            return self._unserved_outcome(action, error) if await self._exists(action) else Missing(action)
        except ServerError as error:
            if error.code != UNAVAILABLE:
                raise
            return self._unserved_outcome(action, error)
        try:
            return Done(action, read_meta(await self._client.get(action.resource, action.key)).resource_version)
        except ApiError as error:
            return Unknown(action, error)

    async def _exists(self, action: Restart) -> bool:
        try:
            return read_meta(await self._client.get(action.resource, action.key)).uid == action.uid
        except NotFound:
            return False

    def _recent_error(self, action: Restart) -> ApiError | None:
        until, error = self._unserved.get(action.requests, (0.0, None))
        return error if asyncio.get_running_loop().time() < until else None

    def _unserved_outcome(self, action: Restart, error: ApiError) -> Unserved:
        self._unserved[action.requests] = (asyncio.get_running_loop().time() + REMEMBERED_S, error)
        return Unserved(action, error)
