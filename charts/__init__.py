"""The Helm chart is in `vmherd`. `python -m charts` generates the files that depend on other files."""
