"""What this machine and its devices are, told without torch: processor, GPUs, limits, the operating system."""
