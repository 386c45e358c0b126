"""Profiles of the controller: a sampler in the process, and the profiled phases of a case."""
