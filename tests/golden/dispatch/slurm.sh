#!/bin/bash
#SBATCH --job-name=rtbuild-a100-90b37680e168
#SBATCH --array=0-0
#SBATCH --gres=gpu:a100_80:1
#SBATCH --time=60
#SBATCH --output=/tmp/rtbuild-%A_%a.log
#SBATCH --open-mode=append
#SBATCH --requeue

tasks=(
  '88141d550072123afdfd registry.example/staging@sha256:1111111111111111111111111111111111111111111111111111111111111111 torch2.1.0-py3.11-bookworm'
)
# Through a pipe: bash before 5.1 makes a temporary file of <<<, for which a node may have no room.
read -r key subject cell suites < <(echo "${tasks[$SLURM_ARRAY_TASK_ID]}")
echo "$key $cell${suites:+ ($suites)} on $SLURMD_NODENAME, attempt ${RTBUILD_ATTEMPT:-1}"
code=0
if RTBUILD_REASON=$(mktemp); then
export RTBUILD_REASON
case $suites in +*) export RTBUILD_SUGGESTED=${suites#+} suites= ;; esac
rtbuild verify-digest --card A100 --runtime auto --timeout 3540 ${RTBUILD_HAND_IN:+--hand-in} ${suites:+--suite "$suites"} "$subject" || code=$?
# It gives its reason unless it did not understand the command, which another node's may.
if [ "$code" -eq 2 ] && [ ! -s "$RTBUILD_REASON" ]; then
code=64 && echo "rtbuild on this node is of another version" >"$RTBUILD_REASON"
fi
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
  2 | 20 | 21) tell "$reason"; exit $code ;;
esac
again=(sbatch --parsable --gres=gpu:a100_80:1 --array="$SLURM_ARRAY_TASK_ID" --comment="$reason")
# The registry is away, which is no attempt. A report that is kept is handed in without a card.
if [ "$code" -eq 75 ] || [ "$code" -eq 76 ]; then
  export RTBUILD_LATER=$((${RTBUILD_LATER:-0} + 1)) RTBUILD_HAND_IN=
  later="--begin=now+$((60 * RTBUILD_LATER))"
  if [ "$RTBUILD_LATER" -le 20 ]; then
    if [ "$code" -eq 76 ]; then
      sed "/^#SBATCH --gres=/d" "$0" | RTBUILD_HAND_IN=1 sbatch --parsable "$later" \
        --array="$SLURM_ARRAY_TASK_ID" --nodelist="$SLURMD_NODENAME" --time=10 \
        --comment="$reason" && exit 0
    fi
    "${again[@]}" "$later" "$0" && exit 0
  fi
  tell "$reason"
  exit 1
fi
# It says nothing about the image: once more, later, and elsewhere if there is an elsewhere. A job
# that has handed its task over, or given it up, ends with a code on which no cluster requeues it.
[ "${RTBUILD_ATTEMPT:-1}" -lt 3 ] || { tell "$reason"; exit 1; }
export RTBUILD_ATTEMPT=$((${RTBUILD_ATTEMPT:-1} + 1))
again+=(--begin=now+60)
echo "exit $code: submitted again"
"${again[@]}" --exclude="$SLURMD_NODENAME" "$0" || "${again[@]}" "$0" && exit 0
tell "again, $reason"  # where no node may submit, the dispatcher does
exit 1

#!/bin/bash
#SBATCH --job-name=rtbuild-t4-3b9bfd397b4b
#SBATCH --array=0-1%4
#SBATCH --gres=gpu:t4:1
#SBATCH --time=30
#SBATCH --partition=gpu
#SBATCH --output=/tmp/rtbuild-%A_%a.log
#SBATCH --open-mode=append
#SBATCH --requeue

tasks=(
  '16c4db08ad8adc506e8c registry.example/staging@sha256:1111111111111111111111111111111111111111111111111111111111111111 torch2.1.0-py3.11-bookworm'
  '49514d058b5f4f7b3e76 registry.example/staging@sha256:2222222222222222222222222222222222222222222222222222222222222222 torch2.2.0-py3.11-bookworm'
)
# Through a pipe: bash before 5.1 makes a temporary file of <<<, for which a node may have no room.
read -r key subject cell suites < <(echo "${tasks[$SLURM_ARRAY_TASK_ID]}")
echo "$key $cell${suites:+ ($suites)} on $SLURMD_NODENAME, attempt ${RTBUILD_ATTEMPT:-1}"
code=0
if RTBUILD_REASON=$(mktemp); then
export RTBUILD_REASON
case $suites in +*) export RTBUILD_SUGGESTED=${suites#+} suites= ;; esac
rtbuild verify-digest --card T4 --runtime auto --timeout 1740 ${RTBUILD_HAND_IN:+--hand-in} ${suites:+--suite "$suites"} "$subject" || code=$?
# It gives its reason unless it did not understand the command, which another node's may.
if [ "$code" -eq 2 ] && [ ! -s "$RTBUILD_REASON" ]; then
code=64 && echo "rtbuild on this node is of another version" >"$RTBUILD_REASON"
fi
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
  2 | 20 | 21) tell "$reason"; exit $code ;;
esac
again=(sbatch --parsable --gres=gpu:t4:1 --array="$SLURM_ARRAY_TASK_ID" --comment="$reason")
# The registry is away, which is no attempt. A report that is kept is handed in without a card.
if [ "$code" -eq 75 ] || [ "$code" -eq 76 ]; then
  export RTBUILD_LATER=$((${RTBUILD_LATER:-0} + 1)) RTBUILD_HAND_IN=
  later="--begin=now+$((60 * RTBUILD_LATER))"
  if [ "$RTBUILD_LATER" -le 20 ]; then
    if [ "$code" -eq 76 ]; then
      sed "/^#SBATCH --gres=/d" "$0" | RTBUILD_HAND_IN=1 sbatch --parsable "$later" \
        --array="$SLURM_ARRAY_TASK_ID" --nodelist="$SLURMD_NODENAME" --time=10 \
        --comment="$reason" && exit 0
    fi
    "${again[@]}" "$later" "$0" && exit 0
  fi
  tell "$reason"
  exit 1
fi
# It says nothing about the image: once more, later, and elsewhere if there is an elsewhere. A job
# that has handed its task over, or given it up, ends with a code on which no cluster requeues it.
[ "${RTBUILD_ATTEMPT:-1}" -lt 3 ] || { tell "$reason"; exit 1; }
export RTBUILD_ATTEMPT=$((${RTBUILD_ATTEMPT:-1} + 1))
again+=(--begin=now+60)
echo "exit $code: submitted again"
"${again[@]}" --exclude="$SLURMD_NODENAME" "$0" || "${again[@]}" "$0" && exit 0
tell "again, $reason"  # where no node may submit, the dispatcher does
exit 1
