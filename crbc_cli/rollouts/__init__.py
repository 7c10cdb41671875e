"""Step table -> ordered rollouts, their ends and outcomes, as arrays.

The bridge between tables and arrays: polars in, numpy out.
"""
