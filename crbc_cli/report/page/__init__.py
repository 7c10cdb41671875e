"""The one-file HTML page."""
