"""Generates files of the Helm chart in charts/vmherd and of manifests/: `python -m tools.chart`."""
