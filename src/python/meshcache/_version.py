"""Version of the package. The build of the npm package writes that package's version here."""

__version__ = "0.1.0"
