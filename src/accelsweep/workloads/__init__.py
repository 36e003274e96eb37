"""The models and data to train: built-in ones, and the user's own, which need not import anything from this package."""
