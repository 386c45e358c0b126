"""Checks the permissions, the served kinds, and whether another controller runs, before the controller starts."""
