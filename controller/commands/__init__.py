"""The commands of the controller. `run` runs until a signal; `takeover`, `cleanup` and `conformance` do one task."""
