"""The commands that do one thing and end: `takeover`, `cleanup`, `expose`."""
