"""Programs that only developers run: the chart, the reference, the pictures and releases.

Nothing here is part of the product, and no other package imports it.
"""
