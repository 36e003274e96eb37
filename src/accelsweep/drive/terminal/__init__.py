"""The terminal: the lines and tables that commands print, and the tones of their words."""
