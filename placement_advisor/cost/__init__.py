"""What ops and copies cost."""
