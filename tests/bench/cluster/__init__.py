"""Benchmarks of the chart on a real cluster; each figure beside its baseline from the same run."""
