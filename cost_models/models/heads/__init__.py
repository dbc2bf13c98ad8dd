"""Heads: drafters that read a target's hidden states, described as data; no torch.

A head is one `HeadDescription`, which a reader makes of the config.json of a public format, and
`specplan.runtime.models.heads` builds. Families of heads differ in data alone.
"""
