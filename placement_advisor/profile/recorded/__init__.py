"""Op costs, links and device facts from a profile that a user recorded elsewhere."""
