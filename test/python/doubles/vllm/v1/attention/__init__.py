"""A double of a package of the framework."""
