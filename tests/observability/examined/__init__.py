"""`rollbox doctor --cluster` on the real cluster: once where all is well, and once for each fault that it must name."""
