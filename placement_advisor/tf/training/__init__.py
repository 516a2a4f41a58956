"""Steps of the user's own training, recorded where it runs."""
