"""The workers that take keys from the queue, and the shares of the event loop and of the side thread.

These modules know keys and results, and nothing about plans.
"""
