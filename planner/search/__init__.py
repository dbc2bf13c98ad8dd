"""The search: `settings` prices candidates, `comparing` chooses one, `composing` one per load.

`search` is the way in. `composing` decides how many draft tokens run at which batch size.
"""
