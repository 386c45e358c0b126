"""The Helm chart is in `vmherd`. What is made from other files is made by `python -m charts`."""
