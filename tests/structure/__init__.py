"""What the code is built like, as text: packages, circles, floors, callbacks, and the way of three calls through it."""
