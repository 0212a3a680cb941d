"""Speed and memory, measured against alternatives in one run on the same machine."""

# Each is measured by a file of its own.
PARTS = ("reading", "data", "clustering", "attention", "model", "training", "streaming", "live")
