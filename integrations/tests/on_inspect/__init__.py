"""inspect-ai."""
