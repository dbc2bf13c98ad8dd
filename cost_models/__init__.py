"""What ops use, what devices make of it, and how many tokens a round emits.

Import from the modules; this package imports nothing by itself, so that it stays light.
"""
