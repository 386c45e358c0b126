"""Values and functions of plain Kubernetes: names, durations, finalizers, raw JSON, field errors. No KubeVirt."""
