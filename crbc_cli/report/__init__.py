"""Results -> tables for people. Pictures and pages live here too."""
