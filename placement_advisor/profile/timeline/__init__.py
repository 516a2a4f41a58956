"""What devices did over time: spans of ops and copies, from planes of any profile."""
