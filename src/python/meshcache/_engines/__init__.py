"""Code that the adapters of several engines share."""
