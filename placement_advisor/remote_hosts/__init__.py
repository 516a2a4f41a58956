"""Hosts that lend their devices: the service there, the conversation with it, its processes."""
