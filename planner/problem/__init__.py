"""The problem file: its schema, how it is read, and what is checked."""
