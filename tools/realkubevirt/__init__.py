"""Real KubeVirt with real VMs, for maintainers: `python -m tools.realkubevirt SOURCE [COMMAND...]`."""
