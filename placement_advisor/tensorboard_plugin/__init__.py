"""The Placement tab of TensorBoard: what it serves, and in ``static/`` what runs in the browser."""
