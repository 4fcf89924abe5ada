"""The command `meshcache` of an installation that has the node, too."""
