"""Health checks: which running sandboxes do not answer, and when they are ended for it."""
