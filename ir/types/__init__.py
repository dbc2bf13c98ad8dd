"""Static analysis of a plan: types, sizes, scopes and lifetimes of its values."""
