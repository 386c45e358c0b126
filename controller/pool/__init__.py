"""Pools: `take_snapshot`, `plan`, `next_status` and `triggers` are pure; `rules` binds them to the caches."""
