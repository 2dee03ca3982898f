"""A real Kubernetes of one node on this machine, with gVisor and Cilium: see README.md here."""
