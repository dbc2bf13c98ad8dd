"""`specplan check`: regressions between two versions, bundles or profiles."""
