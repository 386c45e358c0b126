"""`vmherd demo`: a screen with tables and experiments, or all steps one after the other.

The control plane, the simulator and the controller are processes of their own.
"""
