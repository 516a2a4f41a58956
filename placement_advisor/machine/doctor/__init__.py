"""What a user needs to know of this machine before trying: facts, and what they mean."""
