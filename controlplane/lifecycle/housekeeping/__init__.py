"""Housekeeping of images: what sandboxes need, what owners have made, and what goes from nodes and registries."""
