"""The drafting methods: one file each, found by its place; its `METHOD` is an instance of `Method`.

A file says which settings are legal for a problem and writes a plan for each of them in the closed
set of ops. `CONTRIBUTING.md` says how to add one.
"""
