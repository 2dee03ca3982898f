"""The promises of the threat model, tried: `make security`."""
