"""Credit where trainers take it: re-keyed tables, loaders, log hooks, estimators in process.

`loaders/` and `hooks/` hold the files that `crbc adapter` prints. Each is copied into a trainer's
own code, whose environment need not have this package, so none of them imports it or another.
"""
