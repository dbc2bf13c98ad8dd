"""The resources that ops use, their time on a device, and the tokens that a round emits.

Import from the modules; this package imports nothing by itself, so that it stays light.
"""
