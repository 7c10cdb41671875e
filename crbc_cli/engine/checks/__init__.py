"""What can be wrong with a log: codes as data, facts measured once, one small function a check."""
