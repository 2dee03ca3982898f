"""The hosts of `integrations/`: their suites, and the table of what these have told."""
