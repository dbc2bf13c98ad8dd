"""What devices make of work: data sheets, kernel tables and measurements, in seconds.

Import from the modules; this package imports nothing by itself, so that it stays light.
"""
