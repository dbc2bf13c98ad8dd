"""`specplan check`: what became worse between two versions, bundles or profiles."""
