"""Measurements of the controller and the plugin: `make bench`, and `make soak`. No other package imports them."""
