"""Step table -> anchor key and semantic action per visit."""
