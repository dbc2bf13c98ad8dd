"""The inductor backend: rounds exported and compiled ahead of time to native code (AOTInductor)."""
