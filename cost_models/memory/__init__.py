"""The bytes that a plan needs, part by part, and what would make it fit."""
