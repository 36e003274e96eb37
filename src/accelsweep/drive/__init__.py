"""The head of a sweep: it drives Snakemake, follows the blocks, and tells the terminal how the sweep goes."""
