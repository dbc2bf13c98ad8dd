"""One law per file, found by its place; see `specplan.cost_models.formulas.formula`."""
