"""config.json of decoders, family by family, as one structure; `registry` is the way in.

Keys and defaults are those of Hugging Face transformers 5 (one file per family under
`transformers/models/<family>/configuration_<family>.py`); no transformers is needed.
"""
