"""Bundles: written, opened, compiled and generated with."""
