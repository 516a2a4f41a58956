"""How much arithmetic and memory traffic an op takes, from its kind, shapes and attributes."""
