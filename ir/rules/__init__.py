"""The verifier: named rules of whole rounds and plans, one file per family."""
