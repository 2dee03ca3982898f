"""llm-sandbox."""
