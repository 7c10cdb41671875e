"""Rules that a log itself suggests: evidence from its texts, each rule tested before it is told."""
