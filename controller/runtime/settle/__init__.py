"""What follows a write: expectations until the cache shows it, and the write of the status.

These modules send no write but the status and the history.
"""
