"""What the tab Placement shows, as one file that needs neither TensorBoard nor a network."""
