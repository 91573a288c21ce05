"""Arrays and JSON in files that are written atomically."""
