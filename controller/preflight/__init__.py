"""The checks before the start: permissions, served kinds, and whether another controller runs."""
