"""The client, the informers and the work queue call these methods to report their work, for example as metrics.

The methods are synchronous, must be cheap and must not raise. All durations are in seconds.
"""


class Instruments:
    """Instruments that do nothing. A subclass overrides the methods whose reports it needs."""

    def request_finished(self, *, verb: str, host: str, code: str, seconds: float) -> None:
        """Report a request with its HTTP method, and its HTTP code, or "<error>" if no answer arrived.

        `seconds` is the duration of the request; for a watch, the time until the headers of the answer arrived.
        """

    def request_retried(self, *, verb: str, host: str, code: str) -> None:
        """Report that the client will send a request again after an answer with this HTTP code."""

    # An informer calls these methods. `resource` is `Resource.name`, such as `virtualmachineinstances.kubevirt.io`.

    def listed(self, resource: str, *, reason: str) -> None:
        """Report that a complete list arrived.

        `reason` is "start", "expired" after an error 410, "contradiction" after the cache contradicted the server, and
        "failure" after any other failure.
        """

    def watch_started(self, resource: str) -> None: ...

    def watch_ended(self, resource: str, *, reason: str) -> None:
        """Report that a watch ended. `reason` is one of these texts:

        - "end": the server ended the watch without an error.
        - "expired": the server answered 410.
        - "silent": no data arrived for too long.
        - "contradiction": a user of the cache found that the cache contradicts the server.
        - "restart": the informer closed the watch in order to list again.
        - the class name of the error that ended the watch.
        """

    def progress(self, resource: str) -> None:
        """Report that data arrived (events, a bookmark or a page), or that the informer starts."""

    def decode_failed(self, resource: str) -> None: ...

    def store_size(self, resource: str, objects: int) -> None: ...

    def handler_failed(self, resource: str) -> None: ...

    # A work queue calls these methods. `queue` is the name of the queue.

    def depth(self, queue: str, items: int) -> None: ...

    def added(self, queue: str) -> None: ...

    def retried(self, queue: str) -> None: ...

    def started(self, queue: str, *, waited_s: float) -> None: ...

    def finished(self, queue: str, *, worked_s: float) -> None: ...


NO_INSTRUMENTS = Instruments()
