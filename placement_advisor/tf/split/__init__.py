"""A step whose batch is split: traced at its shares and put together."""
