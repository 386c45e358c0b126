"""The commands of the controller: `run`, and `takeover`, `cleanup` and `expose`, which do one task and end."""
