"""Speed and memory, measured against alternatives in one run on the same machine."""
