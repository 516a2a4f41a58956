"""Whether a placed or split step computes and changes what the step on one device does."""
