"""Device kinds (CPU, CUDA, ROCm, MPS, XPU): detection, telemetry, use by torch, datasheets.

Also reads facts about the host.
"""
