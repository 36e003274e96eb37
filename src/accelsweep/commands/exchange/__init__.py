"""Commands that carry results between accelsweep and elsewhere: archives, others' files, MLflow."""
