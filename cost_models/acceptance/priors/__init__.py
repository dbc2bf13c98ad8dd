"""Acceptance by kind of drafter and task, from published figures: for drafters never measured."""
