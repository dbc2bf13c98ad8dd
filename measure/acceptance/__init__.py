"""What the target accepts from each drafter: traces, replays and their profiles."""
