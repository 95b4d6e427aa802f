"""The only place that talks to Docker."""

from __future__ import annotations

from builder.engine.container import ProbeRun
from builder.engine.doctor import DoctorCheck, diagnose
from builder.engine.engine import BuiltImage, Engine
from builder.engine.events import BuildEvent, StepFinished, StepOutput, StepStarted, Transfer
from builder.engine.facts import EngineFacts, Gpu, GpuFacts
from builder.engine.images import HistoryEntry, StoredImage
from builder.engine.network import UserNetwork, user_network

__all__ = [
    "BuildEvent",
    "BuiltImage",
    "DoctorCheck",
    "Engine",
    "EngineFacts",
    "Gpu",
    "GpuFacts",
    "HistoryEntry",
    "ProbeRun",
    "StepFinished",
    "StepOutput",
    "StepStarted",
    "StoredImage",
    "Transfer",
    "UserNetwork",
    "diagnose",
    "user_network",
]
