"""Human review of runs: draw some, blind them, show them in a local page, and compare the answers with the judge's."""
