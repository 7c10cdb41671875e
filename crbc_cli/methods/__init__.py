"""Values -> credit per visit. Arrays only; one module per method."""
