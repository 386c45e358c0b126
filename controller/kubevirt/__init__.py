"""Types of KubeVirt's API, and pure functions that read and compare them. No I/O, no clock."""
