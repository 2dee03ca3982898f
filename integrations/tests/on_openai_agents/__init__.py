"""openai-agents."""
