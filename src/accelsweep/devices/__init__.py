"""Kinds of device: what they are, what they have, and how they are measured."""
