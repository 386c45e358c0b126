"""The rules that sets and pools share, as pure functions.

A rule of only one kind is in the folder of the kind. A question about one object is in `kubevirt`.
"""
