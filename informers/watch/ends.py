"""The reasons for the end of a watch, as labels for metrics. `Instruments.watch_ended` lists them."""

from typing import Any

from informers.errors import Gone
from informers.watch.parser import WatchError
from informers.watch.watch_state import Ended, Failed, Silent, StreamInput


def reason_of_end(event: StreamInput[Any]) -> str:
    """Return the reason for the end of a watch. `event` is the last input of the watch."""
    match event:
        case Ended():
            return "end"
        case Silent():
            return "silent"
        case Failed(error=Gone()) | WatchError(error=Gone()):
            return "expired"
        case Failed(error=error) | WatchError(error=error):
            return type(error).__name__
        case _:
            return "restart"
