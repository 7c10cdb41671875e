"""Loaders that `crbc adapter NAME` prints, one file per trainer; each stands alone."""
