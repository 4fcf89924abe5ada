"""A double of the framework."""
