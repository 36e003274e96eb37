"""A cell: its config, with the terms that it is made of, and its name in words."""
