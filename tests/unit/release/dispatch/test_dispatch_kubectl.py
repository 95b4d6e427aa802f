"""The real kubectl against a double of an API server, which says what a cluster would."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from doubles.kubernetes import KubeDouble, serve
from doubles.project import A100, T4, report

from builder.cli.app import app
from builder.core.errors import MissingToolError, SchedulerError
from builder.release.dispatch import kubernetes
from builder.release.dispatch.fleet import load_fleet

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.unit.release.dispatch.conftest import Desk

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl: scripts/ensure-tools")
RULE = "preferredDuringSchedulingIgnoredDuringExecution"
CARDS = {"T4": T4, "A100": A100}


@pytest.fixture
def cluster(desk: Desk) -> Iterator[KubeDouble]:
    desk.write_fleet("kubernetes")
    with serve(desk.folder) as running:
        desk.monkeypatch.setenv("KUBECONFIG", str(desk.folder / "kubeconfig"))
        desk.monkeypatch.setenv("HOME", str(desk.folder))  # kubectl keeps what it discovered there
        # a kubectl ends before there is anything to collect, and a third of its start is Go's collector
        desk.monkeypatch.setenv("GOGC", "off")
        yield running


def job_of(cluster: KubeDouble, gpu_class: str, number: int = 0) -> dict[str, Any]:
    found = [
        job for job in cluster.of("jobs") if job["metadata"]["annotations"]["io.rtbuild/class"] == gpu_class
    ]
    return found[number]


def report_of(desk: Desk, job: dict[str, Any], gpu: dict[str, str], **changes: Any) -> str:
    """What the pod of a job prints: stderr's lines, and the probe's JSON."""
    digest = job["spec"]["template"]["spec"]["containers"][0]["image"].partition("@")[2]
    (image,) = (one for one in desk.images() if one.digest == digest)
    document = json.dumps(report(image, gpu=gpu, **changes), indent=1)
    return f"2026-01-01 {{not JSON}}\n{{'nor': 'this'}}\n{document}\nand another line\n"


def end_all(desk: Desk, cluster: KubeDouble) -> None:
    """Every pod ran on the card that was asked for."""
    for number, job in enumerate(cluster.of("jobs")):
        card = CARDS[job["metadata"]["annotations"]["io.rtbuild/class"]]
        ended = {"state": {"terminated": {"exitCode": 0}}}
        status = {"phase": "Succeeded", "containerStatuses": [ended]}
        cluster.pod(job, f"pod-{number}", status, log=report_of(desk, job, card))
        cluster.end(job, "Complete")


def words(rows: list[dict[str, Any]]) -> set[str]:
    return {row["scheduler"] for row in rows}


def test_a_run_from_submission_to_reports(desk: Desk, cluster: KubeDouble) -> None:
    code, rows = desk.tasks()
    assert (code, len(cluster.of("jobs")), len(cluster.of("networkpolicies"))) == (0, 4, 1)
    assert words(rows) == {"no pod yet"}
    posted = [line for line in cluster.requests if line.startswith("POST")]
    assert all("fieldValidation=Strict" in line for line in posted)
    assert sum("dryRun=All" in line for line in posted) == 2, "each class was tried before"
    end_all(desk, cluster)
    code, rows = desk.tasks("--wait", "--every", "0.2")
    assert (code, {row["verdict"] for row in rows}) == (0, {"works"})


def test_a_second_submission_meets_the_first(desk: Desk, cluster: KubeDouble) -> None:
    """Two dispatchers that both saw no job: the server answers 409 to the slower one."""
    desk.call()
    _, manifests = desk.call("--dry-run")
    assert (found := kubernetes.submit(manifests)).new == 0
    assert len(found.there) == found.count == 5
    del cluster.objects["jobs", job_of(cluster, "T4")["metadata"]["name"]]
    assert kubernetes.submit(manifests).new == 1
    assert len(cluster.of("jobs")) == 4


@pytest.mark.slow
def test_a_job_that_another_dispatcher_made_and_that_ended_meanwhile_is_not_run_again(
    desk: Desk, cluster: KubeDouble
) -> None:
    """Its report is still in the pod's log: to delete the Job would run it twice."""
    desk.call()
    other, cluster.objects = cluster.objects, {}
    looks = 0

    def refuse(method: str, path: str) -> None:
        nonlocal looks
        looks += method == "GET" and "/jobs?" in path
        if looks == 2 and not cluster.objects:  # after the first look found nothing
            cluster.objects |= other
            end_all(desk, cluster)

    cluster.refuse = refuse
    made = {key: found["metadata"]["uid"] for key, found in other.items() if key[0] == "jobs"}
    code, rows = desk.tasks("--wait", "--every", "0.2")
    assert (code, {row["verdict"] for row in rows}) == (0, {"works"})
    left = {key: found["metadata"]["uid"] for key, found in cluster.objects.items() if key[0] == "jobs"}
    assert left == made


@pytest.mark.slow
def test_a_newer_job_of_the_same_name_is_not_deleted(desk: Desk, cluster: KubeDouble) -> None:
    """Another user's dispatcher saw the same ended Job, and made its own a moment before."""
    desk.call()
    job = job_of(cluster, "T4")
    cluster.end(job, "Failed", "BackoffLimitExceeded")
    cluster.pod(job, "pod-1", {"phase": "Failed"}, log="Killed")

    def refuse(method: str, _path: str) -> None:
        if method == "DELETE":
            del job["status"]
            job["metadata"]["uid"] = "another's"

    cluster.refuse = refuse
    code, _ = desk.tasks()
    assert code == 0
    assert job_of(cluster, "T4")["metadata"]["uid"] == "another's"
    assert "T4: 0 of 1 are new" in desk.said


@pytest.mark.slow
def test_a_job_that_stuck_and_has_changed_since_is_not_deleted(desk: Desk, cluster: KubeDouble) -> None:
    """Its image was pulled after all, and its pod's log has a report."""
    desk.call()
    job = job_of(cluster, "T4")
    stuck = {"waiting": {"reason": "ErrImagePull", "message": "manifest unknown"}}
    cluster.pod(job, "stuck", {"phase": "Pending", "containerStatuses": [{"state": stuck}]})

    def refuse(method: str, _path: str) -> None:
        if method == "DELETE":
            job["metadata"]["resourceVersion"] = "2"
            cluster.objects.pop(("pods", "stuck"), None)
            end_all(desk, cluster)

    cluster.refuse = refuse
    code, rows = desk.tasks("--wait", "--every", "0.2")
    assert (code, {row["verdict"] for row in rows}) == (0, {"works"})


@pytest.mark.slow
def test_a_job_of_the_same_name_that_is_not_ours(desk: Desk, cluster: KubeDouble) -> None:
    """It is neither deleted nor believed, and its task says why it has no verdict."""
    desk.call()
    theirs = job_of(cluster, "T4")
    name = theirs["metadata"]["name"]
    cluster.objects = {("jobs", name): theirs}
    theirs["metadata"]["labels"] = {"app": "other"}
    made = theirs["metadata"]["uid"]
    code, rows = desk.tasks()
    assert code == 5
    (lost,) = (row for row in rows if row["state"] == "lost")
    assert lost["scheduler"].startswith(f"not submitted: {name} is a Job that rtbuild did not make")
    assert cluster.objects["jobs", name]["metadata"]["uid"] == made
    assert len(cluster.of("jobs")) == 4


@pytest.mark.slow
@pytest.mark.parametrize("labels", [{}, {"io.rtbuild/key": "0"}], ids=["none", "of no task"])
def test_a_job_that_says_it_is_ours_disturbs_no_look(
    desk: Desk, cluster: KubeDouble, labels: dict[str, str]
) -> None:
    desk.call()
    copy = json.loads(json.dumps(job_of(cluster, "T4")))
    copy["metadata"] |= {"name": "mine", "labels": {"app.kubernetes.io/managed-by": "rtbuild"} | labels}
    cluster.objects["jobs", "mine"] = copy
    end_all(desk, cluster)
    code, rows = desk.tasks()
    assert (code, {row["verdict"] for row in rows}) == (0, {"works"})


@pytest.mark.slow
def test_a_quota_of_jobs_is_filled_again_when_reports_are_in_the_registry(
    desk: Desk, cluster: KubeDouble
) -> None:
    """Ended Jobs count, and stay a day for the sake of their logs."""
    cluster.most_jobs = 2

    def refuse(method: str, path: str) -> None:
        if method == "GET" and "/jobs?" in path:
            end_all(desk, cluster)

    cluster.refuse = refuse
    code, rows = desk.tasks("--wait", "--every", "0.2")
    assert (code, {row["verdict"] for row in rows}) == (0, {"works"}), desk.said
    assert len(cluster.of("jobs")) == 2


@pytest.mark.slow
def test_a_quota_that_others_fill_is_said(desk: Desk, cluster: KubeDouble) -> None:
    cluster.most_jobs = 0
    code, rows = desk.tasks("--wait", "--every", "0.2")
    assert code == 5
    assert all(row["scheduler"].startswith("not submitted: exceeded quota: few") for row in rows)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("refusal", "said"),
    [
        ((401, "Unauthorized", "Unauthorized"), "You must be logged in"),
        ((403, "Forbidden", 'jobs.batch is forbidden: User "tests" cannot list'), "cannot list"),
        ((500, "InternalError", "etcdserver: leader changed"), "leader changed"),
    ],
)
def test_a_refusal_is_said_before_anything_is_submitted(
    desk: Desk, cluster: KubeDouble, refusal: tuple[int, str, str], said: str
) -> None:
    cluster.refuse = lambda _method, path: refusal if "/namespaces/" in path else None
    with pytest.raises(SchedulerError) as raised:
        desk.call()
    assert raised.value.exit_code == 5
    assert said in "\n".join(raised.value.tail)
    assert cluster.of("jobs") == []


@pytest.mark.slow
def test_a_token_that_may_look_and_not_create(desk: Desk, cluster: KubeDouble) -> None:
    message = 'jobs.batch is forbidden: User "tests" cannot create resource "jobs"'
    cluster.refuse = lambda method, _path: (403, "Forbidden", message) if method == "POST" else None
    code, rows = desk.tasks()
    assert code == 5
    assert all('cannot create resource "jobs"' in row["scheduler"] for row in rows)
    assert not [line for line in cluster.requests if line.startswith("POST") and "dryRun" not in line]


@pytest.mark.slow
def test_a_login_that_may_not_push_keeps_anything_from_being_submitted(
    desk: Desk, cluster: KubeDouble
) -> None:
    """Reports are attached by this machine, so its login decides."""
    desk.server.fault = lambda request: 401 if request.method == "POST" else None
    with pytest.raises(MissingToolError, match=r"may not push to \S+/staging") as raised:
        desk.call()
    assert raised.value.exit_code == 5
    assert "docker login" in (raised.value.hint or "")
    assert cluster.of("jobs") == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("ErrImagePull", 'failed to resolve reference "r/s@sha256:0": r/s@sha256:0: not found'),
        ("ImagePullBackOff", "Back-off pulling image: ErrImagePull: unexpected status 401 Unauthorized"),
        ("InvalidImageName", "couldn't parse image reference"),
    ],
)
def test_an_image_that_no_try_will_pull_is_not_waited_for(
    desk: Desk, cluster: KubeDouble, reason: str, message: str
) -> None:
    looks: list[str] = []
    stuck = {"state": {"waiting": {"reason": reason, "message": message}}}

    def refuse(method: str, path: str) -> None:
        looks.extend([path] if method == "GET" and "/jobs?" in path else [])
        if len(looks) == 4 and not cluster.of("pods"):
            end_all(desk, cluster)
            del (job := job_of(cluster, "T4"))["status"]
            (pod,) = (
                one
                for one in cluster.of("pods")
                if one["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"]
            )
            pod["status"] = {"phase": "Pending", "containerStatuses": [stuck]}

    cluster.refuse = refuse
    code, rows = desk.tasks("--wait", "--every", "0.2")
    assert code == 5
    (lost,) = (row for row in rows if row["state"] == "lost")
    assert lost["scheduler"].startswith(f"ended without a verdict: the image cannot be pulled: {reason}: ")
    assert len(cluster.of("jobs")) == 3, "it would hold its GPU until the deadline"
    posted = [line for line in cluster.requests if line.startswith("POST") and "dryRun" not in line]
    assert len(posted) == 5, "and it is not tried again"


@pytest.mark.slow
def test_too_many_requests_are_waited_for(desk: Desk, cluster: KubeDouble) -> None:
    """kubectl does as the server says: Retry-After is one second."""
    refused: list[str] = []

    def refuse(method: str, path: str) -> tuple[int, str, str] | None:
        if method != "POST" or "dryRun" in path or refused:
            return None
        refused.append(path)
        return 429, "TooManyRequests", "the server has received too many requests"

    cluster.refuse = refuse
    assert desk.call()[0] == 0
    assert (len(refused), len(cluster.of("jobs"))) == (1, 4)


@pytest.mark.slow
def test_a_server_that_fails_on_the_way(desk: Desk, cluster: KubeDouble) -> None:
    """What was created stays, and the same command creates the rest."""

    def refuse(method: str, path: str) -> tuple[int, str, str] | None:
        full = method == "POST" and "dryRun" not in path and len(cluster.of("jobs")) == 1
        return (500, "InternalError", "etcdserver: request timed out") if full else None

    cluster.refuse = refuse
    with pytest.raises(SchedulerError, match="kubectl create"):
        desk.call()
    assert len(cluster.of("jobs")) == 1
    cluster.refuse = lambda _method, _path: None
    assert desk.call()[0] == 0
    assert len(cluster.of("jobs")) == 4


@pytest.mark.slow
def test_a_server_that_is_away_while_somebody_waits(desk: Desk, cluster: KubeDouble) -> None:
    looks: list[str] = []

    def refuse(method: str, path: str) -> tuple[int, str, str] | None:
        looks.extend([path] if method == "GET" and "/jobs?" in path else [])
        if len(looks) == 8 and not cluster.of("pods"):
            end_all(desk, cluster)
        return (500, "InternalError", "leader changed") if 4 < len(looks) < 8 else None

    cluster.refuse = refuse
    code, rows = desk.tasks("--wait", "--every", "0.2")
    assert (code, {row["verdict"] for row in rows}) == (0, {"works"})
    assert desk.said.count("Kubernetes refused: kubectl get; it is asked again") == 1
    assert desk.said.count("answer again") == 1


@pytest.mark.slow
def test_lists_in_pages_and_a_page_that_is_gone(desk: Desk, cluster: KubeDouble) -> None:
    """410 to a page of a list that has grown too old: kubectl says so, and the next look begins anew."""
    desk.call()
    cluster.page = 3
    fleet = load_fleet(desk.fleet)
    assert len(kubernetes.jobs(fleet)) == 4
    cluster.refuse = lambda _method, path: (
        (410, "Expired", "the provided continue parameter is too old") if "continue=" in path else None
    )
    with pytest.raises(SchedulerError) as raised:
        kubernetes.jobs(fleet)
    assert "too old" in "\n".join(raised.value.tail)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("status", "word"),
    [
        (
            {
                "phase": "Pending",
                "containerStatuses": [
                    {
                        "state": {
                            "waiting": {"reason": "ImagePullBackOff", "message": "Back-off \x1b[2J pulling"}
                        }
                    }
                ],
            },
            "pending: ImagePullBackOff: Back-off \ufffd[2J pulling",
        ),
        (
            {
                "phase": "Pending",
                "conditions": [
                    {
                        "type": "PodScheduled",
                        "status": "False",
                        "reason": "Unschedulable",
                        "message": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
                    }
                ],
            },
            "pending: Unschedulable: 0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
        ),
        (
            {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."},
            "failed: Evicted: The node was low on resource: memory.",
        ),
        ({"phase": "Running"}, "running on node-1"),
    ],
    ids=["ImagePullBackOff", "unschedulable", "evicted", "running"],
)
def test_why_a_task_has_not_come(desk: Desk, cluster: KubeDouble, status: dict[str, Any], word: str) -> None:
    desk.call()
    cluster.pod(job_of(cluster, "T4"), "pod-1", status)
    job_of(cluster, "A100")["spec"]["suspend"] = True
    _, rows = desk.tasks()
    assert words(rows) == {word, "no pod yet", "suspended: it waits in its queue"}


def test_why_a_job_has_no_pod(desk: Desk, cluster: KubeDouble) -> None:
    """The newest event of each Job counts; a login that may not read events is told what it was before."""
    desk.call()
    first, second, *_ = (job for job in cluster.of("jobs"))
    quota = "exceeded quota: cards, requested: requests.nvidia.com/gpu=1, used: 12, limited: 12"
    pod = f'pods "{first["metadata"]["name"]}-x7k2p"'
    cluster.unmade(first, "Error creating: Internal error occurred: webhook \x1b[2J", at=1)
    cluster.unmade(first, f"Error creating: {pod} is forbidden: {quota}", at=2)
    cluster.unmade(second, 'Error creating: admission webhook "gate" denied the request', at=1)
    _, rows = desk.tasks()
    denied = 'no pod yet: admission webhook "gate" denied the request'
    assert sorted(row["scheduler"] for row in rows) == [*["no pod yet"] * 2, denied, f"no pod yet: {quota}"]
    message = 'events is forbidden: User "tests" cannot list resource "events"'
    cluster.refuse = lambda _method, path: (403, "Forbidden", message) if "/events" in path else None
    assert words(desk.tasks()[1]) == {"no pod yet"}


def test_events_are_read_only_where_a_job_has_no_pod(desk: Desk, cluster: KubeDouble) -> None:
    desk.call()
    for number, job in enumerate(cluster.of("jobs")):
        if number:
            cluster.pod(job, f"pod-{number}", {"phase": "Running"})
        else:
            job["spec"]["suspend"] = True
    cluster.requests.clear()
    assert words(desk.tasks()[1]) == {"running on node-1", "suspended: it waits in its queue"}
    assert not [line for line in cluster.requests if "/events" in line]


@pytest.mark.slow
def test_a_task_that_failed_goes_to_another_node(desk: Desk, cluster: KubeDouble) -> None:
    """A dead card fails in seconds and is free again at once: the scheduler would take it each time."""
    looks: list[dict[str, Any]] = []

    def refuse(method: str, path: str) -> None:
        if method != "GET" or "/jobs?" not in path or len(cluster.of("jobs")) < 4:
            return
        job = job_of(cluster, "T4")
        if not looks:
            end_all(desk, cluster)
        if looks[-1:] == [job]:
            return
        looks.append(job)
        name = f"pod-{cluster.of('jobs').index(job)}"
        if len(looks) == 3:
            ended = {"state": {"terminated": {"exitCode": 0}}}
            status = {"phase": "Succeeded", "containerStatuses": [ended]}
            cluster.pod(job, name, status, log=report_of(desk, job, T4))
            cluster.end(job, "Complete")
            return
        status = {"phase": "Failed", "containerStatuses": [{"state": {"terminated": {"exitCode": 22}}}]}
        cluster.pod(job, name, status, log="busy")
        cluster.objects["pods", name]["spec"]["nodeName"] = f"node-{len(looks)}"
        cluster.end(job, "Failed", "BackoffLimitExceeded")

    cluster.refuse = refuse
    code, rows = desk.tasks("--wait", "--every", "0.2")
    assert (code, {row["verdict"] for row in rows}) == (0, {"works"})
    affinities = [job["spec"]["template"]["spec"].get("affinity", {}) for job in looks]
    terms = [one.get("nodeAffinity", {}).get(RULE, [{}])[0] for one in affinities]
    avoided = [[n["values"] for n in one.get("preference", {}).get("matchFields", ())] for one in terms]
    assert avoided == [[], [["node-1"]], [["node-1"], ["node-2"]]]
    assert {job["spec"]["backoffLimit"] for job in cluster.of("jobs")} == {0}


@pytest.mark.slow
def test_an_evicted_pod_and_its_successor(desk: Desk, cluster: KubeDouble) -> None:
    """The log that counts is that of the pod that succeeded, whatever came before or after."""
    desk.call()
    end_all(desk, cluster)
    for number, job in enumerate(cluster.of("jobs")):
        gone = {"phase": "Failed", "reason": "Evicted"}
        cluster.pod(job, f"early-{number}", gone, log="killed", at=0)
        cluster.pod(job, f"late-{number}", gone, log="killed", at=59)
    code, _ = desk.tasks("--wait", "--every", "0.2")
    assert code == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("gpu", "changes", "said"),
    [
        (A100, {}, "the fleet says T4, and its node has A100"),
        (T4, {"verdict": "host", "cause": "driver-missing"}, "the report says host"),
        (T4, {"test_double": True}, None),
        (T4, {"verdict": "broken", "cause": "cudnn-missing"}, "says broken, and its container ended with 0"),
    ],
    ids=["a fleet that lies", "host", "a double", "its exit code"],
)
def test_a_log_that_is_no_verdict_on_the_task(
    desk: Desk, cluster: KubeDouble, gpu: dict[str, str], changes: dict[str, Any], said: str | None
) -> None:
    looks: list[str] = []

    def refuse(method: str, path: str) -> None:
        looks.extend([path] if method == "GET" and "/jobs?" in path else [])
        if len(looks) == 4 and not cluster.of("pods"):
            end_all(desk, cluster)
            job = job_of(cluster, "T4")
            name = next(name for name, log in cluster.logs.items() if log == report_of(desk, job, T4))
            cluster.logs[name] = report_of(desk, job, gpu, **changes)
            if changes.get("verdict") == "host":
                ended = cluster.objects["pods", name]["status"]["containerStatuses"][0]["state"]
                ended["terminated"]["exitCode"] = 22
            cluster.end(job, "Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit")

    cluster.refuse = refuse
    code, rows = desk.tasks("--wait", "--every", "0.2")
    assert code == 5
    assert sorted(row["state"] for row in rows) == ["lost", "verdict", "verdict", "verdict"]
    if said is not None:
        assert desk.said.count(said) == 1, "once, and not at every look"
        assert "failed: BackoffLimitExceeded" in desk.said


@pytest.mark.slow
def test_a_log_with_two_reports_is_none(desk: Desk, cluster: KubeDouble) -> None:
    """Who prints before the probe does could say anything."""
    desk.call()
    end_all(desk, cluster)
    for name, log in cluster.logs.items():
        cluster.logs[name] = log + log
    code, rows = desk.tasks()
    assert code == 0
    assert not any(row["verdict"] for row in rows)
    assert desk.said.count("the log holds several reports") == 4


@pytest.mark.slow
def test_a_job_that_ended_without_a_verdict_is_made_anew(desk: Desk, cluster: KubeDouble) -> None:
    """Its name is taken until it is deleted; its pods go with it."""
    desk.call()
    first = job_of(cluster, "T4")
    cluster.pod(first, "pod-1", {"phase": "Failed"}, log="Killed\n")
    cluster.end(first, "Failed", "DeadlineExceeded", "Job was active longer than specified deadline")
    assert desk.call()[0] == 0
    second = cluster.objects["jobs", first["metadata"]["name"]]
    assert second["metadata"]["uid"] != first["metadata"]["uid"]
    assert cluster.of("pods") == []
    assert "the log holds no report" in desk.said


def test_each_class_is_tried_by_a_dry_run(desk: Desk, cluster: KubeDouble) -> None:
    from typer.testing import CliRunner

    done = CliRunner().invoke(app, ["doctor", "--fleet", str(desk.fleet)], standalone_mode=False)
    assert (done.return_value, done.stdout) == (0, "T4: would be taken\nA100: would be taken\n")
    assert cluster.of("jobs") == []
    cluster.refuse = lambda method, _path: (
        (403, "Forbidden", "exceeded quota: gpus") if method == "POST" else None
    )
    done = CliRunner().invoke(app, ["doctor", "--fleet", str(desk.fleet)], standalone_mode=False)
    assert done.return_value == 5
    assert done.stdout.count("exceeded quota: gpus") == 2


def test_a_dry_run_needs_neither_kubectl_nor_a_cluster(desk: Desk) -> None:
    desk.write_fleet("kubernetes")
    desk.monkeypatch.setenv("PATH", str(desk.bin))
    code, text = desk.call("--dry-run")
    assert (code, text.count("kind: Job")) == (0, 4)


def test_without_the_right_to_make_network_policies_it_goes_on_and_says_so(
    desk: Desk, cluster: KubeDouble
) -> None:
    message = 'networkpolicies.networking.k8s.io is forbidden: User "tests" cannot create resource'
    cluster.refuse = lambda method, path: (
        (403, "Forbidden", message) if method == "POST" and "networkpolicies" in path else None
    )
    assert desk.call()[0] == 0
    assert len(cluster.of("jobs")) == 4
    assert "this login may not make network policies, so the pods can reach the network" in desk.said


def test_a_task_without_a_verdict_says_why(desk: Desk, cluster: KubeDouble) -> None:
    """In the words of the kubelet, or the last of the container: no login to a node, no look for a log."""
    ended = {"terminated": {"exitCode": 137, "reason": "OOMKilled", "message": "loading\ncuDNN 9.1\n"}}
    statuses = [
        {"phase": "Failed", "reason": "DeadlineExceeded", "message": "Pod was active on the node longer"},
        {"phase": "Failed", "containerStatuses": [{"state": ended}]},
    ]

    def refuse(method: str, path: str) -> None:
        if method == "GET" and "/jobs?" in path and len(cluster.of("jobs")) == 4 and not cluster.of("pods"):
            end_all(desk, cluster)
            for number, status in enumerate(statuses):
                job = job_of(cluster, "T4", number)
                cluster.objects.pop(("pods", f"pod-{cluster.of('jobs').index(job)}"))
                cluster.pod(job, f"failed-{number}", status, log="Killed")
                cluster.end(job, "Failed", "BackoffLimitExceeded")

    cluster.refuse = refuse
    desk.write_fleet("kubernetes", "attempts: 1\n")
    code, rows = desk.tasks("--wait", "--every", "0.2")
    assert code == 5
    said = "ended without a verdict: failed: BackoffLimitExceeded: "
    assert {row["scheduler"] for row in rows if row["state"] == "lost"} == {
        said + "DeadlineExceeded: Pod was active on the node longer, on node-1",
        said + "OOMKilled: cuDNN 9.1, on node-1",
    }


def test_many_logs_are_read_by_one_kubectl(desk: Desk, cluster: KubeDouble) -> None:
    """And where one of them does not come, each alone."""
    desk.call()
    end_all(desk, cluster)
    commands = desk.folder / "commands"
    desk.program("kubectl", f'echo "$*" >>{commands}; exec {shutil.which("kubectl")} "$@"')
    assert desk.call("--wait", "--every", "0.2")[0] == 0
    assert [line.split()[:2] for line in commands.read_text().splitlines() if line.startswith("logs")] == [
        ["logs", "--selector"]
    ]


@pytest.mark.slow
def test_a_log_that_is_not_whole_among_others_is_read_alone(desk: Desk, cluster: KubeDouble) -> None:
    """kubectl 1.20 puts the first line of a log behind the last one before, if that has no new line."""
    desk.call()
    end_all(desk, cluster)
    cut = {pod: log.partition("{\n")[2] for pod, log in cluster.logs.items()}
    desk.monkeypatch.setattr(kubernetes, "logs_of", lambda _keys, _fleet: cut)
    code, rows = desk.tasks()
    assert (code, {row["verdict"] for row in rows}) == (0, {"works"})


@pytest.mark.slow
def test_a_log_that_is_gone_costs_no_other(desk: Desk, cluster: KubeDouble) -> None:
    desk.call()
    end_all(desk, cluster)
    del cluster.logs["pod-0"]
    code, rows = desk.tasks()
    assert code == 0
    assert sorted(str(row["verdict"]) for row in rows) == ["None", "works", "works", "works"]
