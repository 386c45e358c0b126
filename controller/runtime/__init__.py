"""This package runs the rules of every kind. It contains the plans, the executor, the expectations, the reconciler and
the workers.
"""
