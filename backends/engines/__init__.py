"""Serving engines (vLLM, SGLang, ...): the plans that they can express, and their configuration.

An engine is three files of one name: `NAME.py` writes its files, `NAME.yaml` says what it can
express and how far that was verified, `NAME.schema.json` is what its files are checked against.
"""
