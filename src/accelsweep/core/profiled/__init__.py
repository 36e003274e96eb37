"""What a run of its own saw of a setting, beside what was measured."""
