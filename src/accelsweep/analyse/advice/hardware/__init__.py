"""The advice of `accelsweep advise`: offers of hardware for a training, by their tiers, bounds and sensitivity."""
