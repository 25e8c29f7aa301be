"""Other tools' shapes of our records."""
