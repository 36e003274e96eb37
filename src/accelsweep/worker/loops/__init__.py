"""Training loops: Lightning's, and a bare one to compare it with."""
