"""The only place that talks to Docker."""

from __future__ import annotations

from builder.engine.build import BuildRequest
from builder.engine.container import ProbeRun
from builder.engine.doctor import DoctorCheck, diagnose
from builder.engine.engine import Engine
from builder.engine.facts import EngineFacts, Gpu, GpuFacts
from builder.engine.images import HistoryEntry, StoredImage
from builder.engine.network import UserNetwork, user_network

__all__ = [
    "BuildRequest",
    "DoctorCheck",
    "Engine",
    "EngineFacts",
    "Gpu",
    "GpuFacts",
    "HistoryEntry",
    "ProbeRun",
    "StoredImage",
    "UserNetwork",
    "diagnose",
    "user_network",
]
