"""Defines a setting's schema, a sweep's options and the site, and composes them with Hydra."""
