"""Memory of this process that the node reads and writes: regions, and staging memory for regions that it cannot map."""
