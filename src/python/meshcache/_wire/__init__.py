"""Communication between a client and its node: frames, connections, and the state of the node process."""
