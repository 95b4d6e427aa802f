from .builds import building
from .fleet import Scheduler, load_fleet
from .follow import Follower, TaskState, exit_code
from .node import verify_digest
from .plan import missing
from .run import rendered_cells, try_fleet, verifying

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
