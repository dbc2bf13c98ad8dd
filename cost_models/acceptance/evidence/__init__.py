"""What is known of a drafter's acceptance, one file per kind of evidence.

Each says which rounds it prices, what these accept, and its form in files; how it is measured
stands in `specplan.measure.acceptance.tracers`. Import from the modules; this package imports
nothing itself.
"""
