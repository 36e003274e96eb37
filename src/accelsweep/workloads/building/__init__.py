"""From the config to objects: models, data modules and optimisers, ours and the user's alike."""
