"""Web frameworks and programs with pages, in an image of their own."""
