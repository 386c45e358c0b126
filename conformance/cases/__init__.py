"""The cases, one module for each subject. `catalogue.py` lists the modules."""
