"""Taking ended sandboxes off the cluster, and waiting for it."""
