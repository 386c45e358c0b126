"""Plain Kubernetes: names, durations, finalizers, raw JSON, errors in fields. Nothing of KubeVirt."""
