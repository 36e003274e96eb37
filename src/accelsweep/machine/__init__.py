"""Facts about the machine and its devices, found without torch: processor, GPUs, limits, the operating system."""
