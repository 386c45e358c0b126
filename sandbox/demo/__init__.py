"""`vmherd demo`: a screen with tables and experiments, or all steps one after the other."""
