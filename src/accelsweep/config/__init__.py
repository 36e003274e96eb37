"""The schema of a setting, the options of a sweep, the site, and how Hydra composes them."""
