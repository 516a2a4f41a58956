"""`advisor doctor --run`: a known step on the devices that are here."""
