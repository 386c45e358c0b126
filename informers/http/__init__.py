"""The client of the API server: connections, credentials, limits, and the gate. It knows no cache and no kind."""
