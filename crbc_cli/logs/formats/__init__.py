"""One module per on-disk container; each yields `Batch`es of the asked-for fields."""
