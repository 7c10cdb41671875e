"""Bytes on disk or stdin -> step table, and tables -> bytes."""
