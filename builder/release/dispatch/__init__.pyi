from .fleet import Scheduler, load_fleet
from .node import verify_digest
from .run import building, rendered_cells, try_fleet, verifying
from .tasks import Follower, TaskState, exit_code, missing

__all__ = [
    "Follower",
    "Scheduler",
    "TaskState",
    "building",
    "exit_code",
    "load_fleet",
    "missing",
    "rendered_cells",
    "try_fleet",
    "verify_digest",
    "verifying",
]
