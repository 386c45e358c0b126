"""Replica sets. `take_snapshot`, `plan`, `next_status` and `triggers` are pure; `rules` connects them to the caches."""
