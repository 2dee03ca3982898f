"""The alerts on the real stack: faults are injected one by one, and each alert fires and ends with its fault."""
