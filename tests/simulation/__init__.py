"""The whole controller under one seed.

A *life* is one run of the simulation: two controllers with the real `controller.app.serve`, an API server in memory,
a simulated KubeVirt, users and faults, all on one event loop with virtual time. A life has about ten simulated minutes
and takes about a second. A seed makes all choices, so a life can be replayed.

- `loop`: the event loop. `network`: a stand-in for the session of aiohttp, below the real `ApiClient`.
- `server`: the API server, with watches as byte streams, an audit of all changes, and `policies`.
- `kubevirt` and `guests`: the VM controller, nodes and guests. `live`: changes of VMs that run. `takeover`: what
  KubeVirt's own controllers have made. `replica`: a controller that crashes and starts again.
- `story`: what happens in a life, as data. `features`: what users may write. `users` and `weather` carry out a story.
- `life`: runs a story until the world is at rest. `moments`: what plans and views say meanwhile. `foretold`: what the
  plugin says that comes. `views`: whether all views agree. `twins`: the same life with and without a crash.
- `judge`: what a user expects, as sentences. It reads the history.
- `coverage`: counts what was covered. `__main__` makes the story of a violation short.

    make simulate ARGS="--seeds 300"                 run lives, and print violations with short stories
    make simulate ARGS="--from 17 --seeds 1 --story" replay one life

Latencies and timers have random times, so that tasks race. Callbacks that are ready keep their order: asyncio promises
it. There is no TLS, no HTTP, no file and no thread here: `tests/faults` has these on a real API server.
"""
