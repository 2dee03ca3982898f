"""What rollbox costs, measured beside a baseline in the same run; records as in docs/inside/tests.md."""
