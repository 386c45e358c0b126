"""The HTTP server for probes and metrics, with its health checks, certificates and authorization."""
