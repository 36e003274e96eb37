"""Kinds of device (CPU, CUDA, ROCm, MPS, XPU): detection, telemetry, torch on them, makers' figures; host facts."""
