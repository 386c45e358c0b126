"""Checks before the controller starts: permissions, served kinds, and a second controller for the same objects."""
