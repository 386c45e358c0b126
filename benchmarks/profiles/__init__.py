"""Profiles of the controller: a sampler, and the shares of the functions."""
