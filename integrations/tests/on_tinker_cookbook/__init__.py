"""tinker-cookbook."""
