"""The straight line over many groups: load, arrange, solve in chunks, put numbers back on rows."""
