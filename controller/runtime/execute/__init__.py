"""The effects of a plan: requests to the API server, with the checks before each delete and each create.

These modules decide nothing about a kind. The rules of a kind are in its folder.
"""
