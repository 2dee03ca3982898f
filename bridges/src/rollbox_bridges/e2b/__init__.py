"""A server of E2B's protocol: its control plane, what its clients reach in a sandbox, and its code interpreter."""
