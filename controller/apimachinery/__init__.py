"""Types and functions for Kubernetes in general: names, durations, finalizers, raw JSON, field errors.

No module of this package depends on KubeVirt.
"""
