"""The network: events to tokens, attention, blocks, heads, and networks on disk."""
