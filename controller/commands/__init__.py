"""The commands of the controller. `run` runs until a signal; `takeover`, `cleanup` and `expose` do one task and end."""
