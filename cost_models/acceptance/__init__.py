"""How much of a draft is accepted: profiles, models, fits and importers.

Import from the modules; this package imports nothing by itself, so that it stays light.
"""
