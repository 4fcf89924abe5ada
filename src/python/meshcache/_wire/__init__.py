"""What a client and its node say to each other: frames, one connection, and whether the node process still lives."""
