"""The user's own step, placed or made parallel in their own process."""
