"""The only importer of TensorFlow and Keras. Its functions run in child processes."""
