"""The models and data to train: built-in ones, and the user's own, which need nothing from this package."""
