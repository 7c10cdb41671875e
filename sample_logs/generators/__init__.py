"""Scripts that wrote the logs one folder up; each module's docstring holds its command line."""
