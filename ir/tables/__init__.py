"""The open tables of the plan language: rules, laws, measures, sources and cache policies."""
