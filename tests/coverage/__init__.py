"""Line and branch coverage of the control plane, the SDK, the gateway and the sidecar by their own tests."""
