"""Moving pages between the node and this process's memory: directly, through staging memory, or on the socket."""
