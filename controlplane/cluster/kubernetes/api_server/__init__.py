"""The API server: a client of it, its watches, and what its answers and failures mean."""
