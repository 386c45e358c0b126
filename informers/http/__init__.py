"""The client of the API server: connections, credentials, limits, and the gate before each write.

These modules know no cache and no kind of object.
"""
