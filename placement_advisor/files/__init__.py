"""Files of others, read as data within limits, and our own, complete or not there."""
