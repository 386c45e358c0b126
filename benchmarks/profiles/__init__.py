"""Profiles of the controller: a sampler, and flame graphs as SVG."""
