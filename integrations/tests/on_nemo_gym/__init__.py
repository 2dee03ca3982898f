"""NeMo Gym."""
