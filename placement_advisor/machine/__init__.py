"""Devices, the links between them, and what this machine has of them."""
