"""The HTTP server for probes and metrics: health, certificates, authorization."""
