#!/usr/bin/env bash
# One node of 8 GPUs: Qwen3 4B or 8B with GEAR in verl. NOT RUN: written for verl 0.9.1 with vLLM, on a machine without GPUs.
#
#   examples/verl/train_node.sh maths Qwen/Qwen3-4B        DAPO-Math-17k, hint: the answer
#   examples/verl/train_node.sh tools Qwen/Qwen3-8B        ToolRL, hint: the calls of the reference solution
#   CREDIT=grpo examples/verl/train_node.sh maths Qwen/Qwen3-4B trainer.total_training_steps=200
#
# Whatever follows the model goes to verl as it is. The paper says which models and which kinds of tasks; batch, lengths and
# learning rate are usual values for GRPO at this size, and ours.
set -euo pipefail
kind=${1:?maths or tools}; model=${2:?a model, such as Qwen/Qwen3-4B}; shift 2
credit=${CREDIT:-gear}; nodes=${NODES:-1}; gpus=${GPUS:-8}
data=${DATA:-data/verl}; out=${OUT:-runs/verl/$kind-$(basename "$model")-$credit}

case $kind in
  maths) task=dapo response=8192 ;;   # tested on MATH-500
  tools) task=toolrl response=1024 ;;
  *) echo "maths or tools, not $kind" >&2; exit 2 ;;
esac
# FOLDER holds the task's files, as `gear eval` reads them (docs/tasks.md).
for split in train test; do
  [ -f "$data/$task-$split.parquet" ] ||
    python -m gear_rl.engines.verl.data "$task" ${FOLDER:+--set "task.data=$FOLDER"} --split "$split" --out "$data/$task-$split.parquet"
done

# The 4B model trains with whole optimizer states on the GPUs; the 8B model's are kept on the CPU between updates.
offload=False; [[ $model == *8B* ]] && offload=True

exec python -m gear_rl.engines.verl \
  trainer.v1.trainer_mode=gear +gear.credit="$credit" +gear.task.name="$task" +gear.task.max_turn_tokens=$response \
  +gear.record="$out/rollouts.jsonl" +gear.record_every=10 \
  ${FOLDER:++gear.task.data="$FOLDER"} \
  algorithm.adv_estimator=grpo algorithm.use_kl_in_reward=False \
  data.train_files="$data/$task-train.parquet" data.val_files="$data/$task-test.parquet" \
  data.train_batch_size=128 data.max_prompt_length=4096 data.max_response_length=$response \
  actor_rollout_ref.model.path="$model" actor_rollout_ref.model.use_remove_padding=True \
  actor_rollout_ref.model.enable_gradient_checkpointing=True \
  actor_rollout_ref.actor.strategy=fsdp2 actor_rollout_ref.actor.ppo_mini_batch_size=64 \
  actor_rollout_ref.actor.use_dynamic_bsz=True actor_rollout_ref.actor.ppo_max_token_len_per_gpu=16384 \
  actor_rollout_ref.rollout.log_prob_use_dynamic_bsz=True actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu=16384 \
  actor_rollout_ref.actor.optim.lr=1e-6 actor_rollout_ref.actor.use_kl_loss=False \
  actor_rollout_ref.actor.fsdp_config.param_offload=$offload actor_rollout_ref.actor.fsdp_config.optimizer_offload=$offload \
  actor_rollout_ref.rollout.name=vllm actor_rollout_ref.rollout.n=8 actor_rollout_ref.rollout.temperature=1.0 \
  actor_rollout_ref.rollout.tensor_model_parallel_size=1 actor_rollout_ref.rollout.gpu_memory_utilization=0.6 \
  trainer.n_gpus_per_node="$gpus" trainer.nnodes="$nodes" trainer.total_training_steps=300 \
  trainer.val_before_train=True trainer.test_freq=20 trainer.save_freq=20 trainer.max_actor_ckpt_to_keep=2 \
  trainer.default_local_dir="$out/checkpoints" trainer.project_name=gear-rl trainer.experiment_name="$(basename "$out")" \
  'trainer.logger=[console,tensorboard]' "$@"
