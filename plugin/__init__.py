"""The command `kubectl vmherd`: shows the state of replica sets and pools, and changes them at a user's request."""
