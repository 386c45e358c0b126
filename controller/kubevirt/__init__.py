"""Types of KubeVirt's API, and pure functions that read and compare values of these types.

No function in this package does I/O or reads a clock.
"""
