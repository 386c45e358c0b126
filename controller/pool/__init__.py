"""The controller of VirtualMachinePools.

`take_snapshot`, `plan`, `next_status` and `triggers` are pure functions. `rules` binds them to the caches.
"""
