"""The command `meshcache` of an installation that includes the node."""
