"""Objects made of the config: models, data modules and optimisers, ours and the user's alike."""
