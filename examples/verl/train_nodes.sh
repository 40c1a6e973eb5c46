#!/usr/bin/env bash
# Several nodes of 8 GPUs on one Ray cluster. NOT RUN. Start it on every node, with the same arguments:
#
#   HEAD=10.0.0.1 NODES=4 examples/verl/train_nodes.sh maths Qwen/Qwen3-8B data.train_batch_size=512
#
# The node whose address is HEAD starts the cluster, waits for the others, and trains; the others join it and wait for its end.
# Data, model and OUT must lie on a disk that all nodes see. The variable that makes verl load gear_rl is set before Ray
# starts, on every node: worker processes take their environment from there.
set -euo pipefail
: "${HEAD:?address of the head node}" "${NODES:?number of nodes}"
port=${PORT:-6379}; here=$(cd "$(dirname "$0")" && pwd)
export VERL_USE_EXTERNAL_MODULES=gear_rl.engines.verl

if hostname -I | tr ' ' '\n' | grep -qxF "$HEAD"; then
  ray start --head --node-ip-address="$HEAD" --port="$port" --num-gpus="${GPUS:-8}"
  trap 'ray stop' EXIT
  until [ "$(python -c 'import ray; ray.init(address="auto", log_to_driver=False); print(sum(n["Alive"] for n in ray.nodes()))' 2>/dev/null)" = "$NODES" ]; do
    sleep 5
  done
  RAY_ADDRESS="$HEAD:$port" NODES="$NODES" "$here/train_node.sh" "$@"
else
  until ray start --address="$HEAD:$port" --num-gpus="${GPUS:-8}" --block; do sleep 5; done
fi
