"""How pages get between the node and memory of this process: directly, through staging memory, on the socket."""
