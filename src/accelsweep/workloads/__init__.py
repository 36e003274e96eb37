"""What is trained: shipped models and data sets, and the user's own, which need nothing from here."""
