"""The client, the informers and the work queue call these methods to report their work, for example as metrics.

The methods are synchronous, must be cheap and must not raise. All durations are in seconds.
"""


class Instruments:
    """Instruments that do nothing. A subclass overrides the methods whose reports it needs."""

    def request_finished(self, *, verb: str, host: str, code: str, seconds: float) -> None:
        """`code` is the HTTP code, or "<error>". For a watch, `seconds` ends when the headers of the answer arrive."""

    def request_retried(self, *, verb: str, host: str, code: str) -> None:
        """Report that the client will send a request again after an answer with this HTTP code."""

    # An informer calls these methods. `resource` is `Resource.name`, such as `virtualmachineinstances.kubevirt.io`.

    def listed(self, resource: str, *, reason: str) -> None:
        """`reason` is "start", "expired" (410), "contradiction", or "failure" after any other failure."""

    def watch_started(self, resource: str) -> None: ...

    def watch_ended(self, resource: str, *, reason: str) -> None:
        """`reason` is "end", "expired" (410), "silent", "contradiction", "restart", or the class of the error."""

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
