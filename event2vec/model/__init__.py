"""The network: embedding, attention, blocks, heads, and saved networks."""
