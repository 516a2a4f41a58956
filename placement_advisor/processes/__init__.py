"""Child processes in which TensorFlow and the user's code run, and the guard that ends them."""
