"""The bridge of Prime Sandboxes: its control plane and its gateway, of both generations, over rollbox."""
