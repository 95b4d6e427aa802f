#!/bin/bash
#SBATCH --job-name=rtbuild-build-e65c9312e401
#SBATCH --array=0-1
#SBATCH --cpus-per-task=4
#SBATCH --mem=8G
#SBATCH --time=30
#SBATCH --partition=cpu
#SBATCH --output=/tmp/rtbuild-%A_%a.log
#SBATCH --open-mode=append
#SBATCH --requeue

tasks=(
  '395b69c5d6f06d66d73e torch=registry.example/staging tf2.8'
  'facadfee026f1e618105 torch=registry.example/staging torch2.3'
)
# Through a pipe: bash before 5.1 makes a temporary file of <<<, for which a node may have no room.
read -r key subject cell suites < <(echo "${tasks[$SLURM_ARRAY_TASK_ID]}")
echo "$key $cell${suites:+ ($suites)} on $SLURMD_NODENAME, attempt ${RTBUILD_ATTEMPT:-1}"
code=0
if RTBUILD_REASON=$(mktemp); then
export RTBUILD_REASON
folder=$(mktemp -d) || exit 5
trap 'rm -rf "$folder"' EXIT
cat >"$folder"/torch.yaml <<'END-10c0948842cbf646' || exit 5
version: 1
name: torch
# it's $HOME `id`
END-10c0948842cbf646
cat >"$folder"/torch.lock.json <<'END-991f99bdda71cb38' || exit 5
{"cells": {}}
END-991f99bdda71cb38
repository=${subject#*=} matrix=${subject%%=*}
cd "$folder" && rtbuild build --locked --engine none --progress plain "$matrix.yaml" --select "$cell" --push "$repository" --layers-from "$repository" --layers-key /etc/rtbuild/cosign.pub --key env://COSIGN_KEY || code=$?
reason=$(head -c 500 "$RTBUILD_REASON")
rm -f "$RTBUILD_REASON"
else
code=1 reason="no temporary file can be made on this node"
fi
[ "$code" -ne 127 ] || reason="rtbuild is not on this node"
reason="rtbuild: $SLURMD_NODENAME: ${reason:-exit $code}"
# Its job's comment is what squeue shows of it, and whoever waits reads why without a login here.
tell() {
  scontrol update "JobId=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID" "Comment=$1" || true
}
case $code in
  0) exit 0 ;;
  2 | 4) tell "$reason"; exit $code ;;
esac
again=(sbatch --parsable --array="$SLURM_ARRAY_TASK_ID" --comment="$reason")
# It says nothing about the image: once more, later, and elsewhere if there is an elsewhere. A job
# that has handed its task over, or given it up, ends with a code on which no cluster requeues it.
[ "${RTBUILD_ATTEMPT:-1}" -lt 3 ] || { tell "$reason"; exit 1; }
export RTBUILD_ATTEMPT=$((${RTBUILD_ATTEMPT:-1} + 1))
again+=(--begin=now+60)
echo "exit $code: submitted again"
"${again[@]}" --exclude="$SLURMD_NODENAME" "$0" || "${again[@]}" "$0" && exit 0
tell "again, $reason"  # where no node may submit, the dispatcher does
exit 1
