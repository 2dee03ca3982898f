"""uni-agent."""
