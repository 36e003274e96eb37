"""The kinds of accelerator, each in one file behind the interface of `machine.devices`."""
