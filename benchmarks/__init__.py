"""Measurements of the controller and the plugin: `make bench`. No other package imports them."""
