"""Messages and stubs generated from ``contract/*.proto``. Nothing here is written by hand; any layer may import it."""
