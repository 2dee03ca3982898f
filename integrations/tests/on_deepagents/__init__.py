"""deepagents."""
