"""What rollbox costs, measured beside a baseline in the same run; records as in ARCHITECTURE.md, section Benchmarks."""
