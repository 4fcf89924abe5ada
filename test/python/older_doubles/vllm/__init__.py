"""A double of a package of the framework."""

__version__ = "0.25.1"
