"""smolagents."""
