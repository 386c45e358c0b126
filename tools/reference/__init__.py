"""Writes the pages of docs/reference/ from the sources of the program."""
