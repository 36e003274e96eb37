"""The kinds of accelerator, each in one file over the base in `machine.kind`."""
