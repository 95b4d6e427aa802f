#!/bin/bash
#SBATCH --job-name=rtbuild-a100
#SBATCH --array=0-0
#SBATCH --gres=gpu:a100_80:1
#SBATCH --time=60
#SBATCH --output=/tmp/rtbuild-%A_%a.log
#SBATCH --open-mode=append
#SBATCH --requeue

tasks=(
  '077a58018f12ede2d72c registry.example/staging@sha256:1111111111111111111111111111111111111111111111111111111111111111 torch2.1.0-py3.11-bookworm'
)
read -r key subject cell <<<"${tasks[$SLURM_ARRAY_TASK_ID]}"
echo "$key $cell on $SLURMD_NODENAME, attempt ${RTBUILD_ATTEMPT:-1}"
code=0
rtbuild verify-digest --card A100 --runtime auto --timeout 3540 "$subject" || code=$?
case $code in
  0 | 2 | 20 | 21) exit $code ;;
esac
# It says nothing about the image: once more, later, and elsewhere if there is an elsewhere. A job
# that has handed its task over, or given it up, ends with a code on which no cluster requeues it.
[ "${RTBUILD_ATTEMPT:-1}" -lt 3 ] || exit 1
export RTBUILD_ATTEMPT=$((${RTBUILD_ATTEMPT:-1} + 1))
again=(sbatch --parsable --array="$SLURM_ARRAY_TASK_ID" --begin=now+60)
echo "exit $code: submitted again"
"${again[@]}" --exclude="$SLURMD_NODENAME" "$0" || "${again[@]}" "$0" || exit 1

#!/bin/bash
#SBATCH --job-name=rtbuild-t4
#SBATCH --array=0-1%4
#SBATCH --gres=gpu:t4:1
#SBATCH --time=30
#SBATCH --partition=gpu
#SBATCH --output=/tmp/rtbuild-%A_%a.log
#SBATCH --open-mode=append
#SBATCH --requeue

tasks=(
  '0517abf563fbc09a30e0 registry.example/staging@sha256:1111111111111111111111111111111111111111111111111111111111111111 torch2.1.0-py3.11-bookworm'
  '7522f0c48a5ae4ea28b2 registry.example/staging@sha256:2222222222222222222222222222222222222222222222222222222222222222 torch2.2.0-py3.11-bookworm'
)
read -r key subject cell <<<"${tasks[$SLURM_ARRAY_TASK_ID]}"
echo "$key $cell on $SLURMD_NODENAME, attempt ${RTBUILD_ATTEMPT:-1}"
code=0
rtbuild verify-digest --card T4 --runtime auto --timeout 1740 "$subject" || code=$?
case $code in
  0 | 2 | 20 | 21) exit $code ;;
esac
# It says nothing about the image: once more, later, and elsewhere if there is an elsewhere. A job
# that has handed its task over, or given it up, ends with a code on which no cluster requeues it.
[ "${RTBUILD_ATTEMPT:-1}" -lt 3 ] || exit 1
export RTBUILD_ATTEMPT=$((${RTBUILD_ATTEMPT:-1} + 1))
again=(sbatch --parsable --array="$SLURM_ARRAY_TASK_ID" --begin=now+60)
echo "exit $code: submitted again"
"${again[@]}" --exclude="$SLURMD_NODENAME" "$0" || "${again[@]}" "$0" || exit 1
