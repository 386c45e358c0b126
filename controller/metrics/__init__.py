"""Makes the metrics of the program and of its objects, and the page /metrics that shows these metrics."""
