"""What the adapters of several engines share."""
