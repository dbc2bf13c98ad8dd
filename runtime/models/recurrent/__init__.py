"""Models whose layers have a recurrent state: state-space models and hybrids of them."""
