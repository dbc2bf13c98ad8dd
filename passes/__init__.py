"""Plan to plan: each pass one verb in one file; `pipeline` runs them in order."""
