"""Objects for Python and notebooks: problems by keywords, cards, tables, sweeps, plots."""
