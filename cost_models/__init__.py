"""What ops use, how long that takes on a device, and how many tokens a round emits.

Import from the modules; this package imports nothing by itself, so that it stays light.
"""
