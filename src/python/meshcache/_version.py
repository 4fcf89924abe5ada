"""Version of the package; the build of the npm package writes its own here."""

__version__ = "0.1.0"
