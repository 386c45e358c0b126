"""The Helm chart is in `vmherd`. `python -m charts` writes its generated files."""
