"""A double of the framework package: signatures and nothing else."""
