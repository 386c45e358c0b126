"""The metrics of the program and of its objects, and the page /metrics."""
