"""What commands answer, as it is published: frozen dataclasses that are the JSON contracts."""
