"""Log hooks that `crbc adapter NAME --hook` prints, one file per trainer; each stands alone."""
