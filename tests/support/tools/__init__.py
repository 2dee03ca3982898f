"""Programs that fetch packages, in an image, and the indexes that they ask, outside of a sandbox."""
