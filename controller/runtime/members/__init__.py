"""The members of a set or pool in groups, kept up to date while objects change.

These modules know no kind: each kind has its own traits.
"""
