"""Published formulas as expressions, closed forms, and where an equation breaks even."""
