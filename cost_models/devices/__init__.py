"""How long work takes on a device, in seconds: data sheets, kernel tables and measurements.

`device` is the interface, `roofline` prices by a data sheet, `measured` by a profile of this
machine, `silicon` by kernel tables, `engine_runs` by runs of a serving engine.

Import from the modules; this package imports nothing by itself, so that it stays light.
"""
