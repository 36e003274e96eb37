"""A setting's schema, a sweep's options, the site, and how Hydra composes them."""
