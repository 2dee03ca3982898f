"""The Docker Engine API over rollbox: a container is a sandbox."""
