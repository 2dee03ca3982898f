"""Servers that speak the protocols of other sandbox platforms, over the public SDK of rollbox."""

__version__ = "0.1.0"
