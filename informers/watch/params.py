"""The parameters of the request for a watch."""

from informers.watch.watch_state import Streaming, Watching

MIN_WATCH_S, MAX_WATCH_S = 300, 600
"""Shortest and longest duration of a watch in seconds.

For each watch, the reflector asks the server to end the watch after a random time in this range. So the watches of many
clients do not start again at the same time.
"""


def watch_params(state: Streaming | Watching, chance: float) -> dict[str, str]:
    """Return the parameters of the watch for a state. `chance` in [0, 1) selects the duration of the watch."""
    timeout_s = MIN_WATCH_S + round(chance * (MAX_WATCH_S - MIN_WATCH_S))
    params = {"watch": "1", "allowWatchBookmarks": "true", "timeoutSeconds": str(timeout_s)}
    if isinstance(state, Watching):
        return {**params, "resourceVersion": state.version}
    return {**params, "sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
