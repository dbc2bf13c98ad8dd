"""Models as numbers: layers, formats and files, and what an op of a pass uses.

Import from the modules; this package imports nothing by itself, so that it stays light.
"""
