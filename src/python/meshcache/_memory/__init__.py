"""Memory of this process that the node reads and writes: regions, and staging where it cannot map them."""
