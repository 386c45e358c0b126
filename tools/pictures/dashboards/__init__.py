"""Draws the dashboards from the data of a real Prometheus, which has scraped a real vmherd on a sandbox."""
