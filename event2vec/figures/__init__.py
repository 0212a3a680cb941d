"""Pictures of events and of what a network makes of them."""
