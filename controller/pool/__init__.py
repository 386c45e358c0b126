"""Pools: `take_snapshot`, `plan`, `next_status` and `wake` are pure; `reconciler` is the shell around them."""
