#!/usr/bin/env python3
"""OpenVINO GenAI's continuous batching on a GGUF file, in process, without HTTP: one JSON object on standard output.

Run by compare.py and batching.py with the Python of the environment that setup.sh made. Prompts are random token ids, given as ids:
what a prompt says does not change its cost. The scheduler is as OpenVINO ships it, with prefix caching off.
"""

import argparse
import json
import random
import time

import numpy as np
import openvino
import openvino_genai

# Below the special and rare ids of every vocabulary this is used with.
ORDINARY_IDS = range(1000, 30000)
CACHE_GB = 3
MAX_SEQUENCES = 256


def open_pipeline(model, threads):
    scheduler = openvino_genai.SchedulerConfig()
    scheduler.cache_size = CACHE_GB
    scheduler.max_num_seqs = MAX_SEQUENCES
    scheduler.enable_prefix_caching = False
    properties = {"INFERENCE_NUM_THREADS": threads}
    return openvino_genai.ContinuousBatchingPipeline(model, scheduler, "CPU", properties)


def generation(new_tokens):
    config = openvino_genai.GenerationConfig()
    config.max_new_tokens = config.min_new_tokens = new_tokens
    config.do_sample, config.ignore_eos, config.apply_chat_template = False, True, False
    return config


def random_prompt(length):
    return openvino.Tensor(np.array([random.choices(ORDINARY_IDS, k=length)], dtype=np.int64))


def run(pipe, requests, prompt_length, new_tokens):
    """Runs equal requests together; the moments at which tokens appeared: [(seconds, request, how many)]."""
    config = generation(new_tokens)
    prompts = [random_prompt(prompt_length) for _ in range(requests)]
    start = time.perf_counter()
    handles = [pipe.add_request(i, prompt, config) for i, prompt in enumerate(prompts)]
    seen = []
    while pipe.has_non_finished_requests():
        pipe.step()
        now = time.perf_counter() - start
        for i, handle in enumerate(handles):
            if handle.can_read():
                seen.append((now, i, sum(len(part.generated_ids) for part in handle.read().values())))
    return seen


def prefill_speed(pipe, length):
    first = run(pipe, 1, length, 2)[0][0]
    return length / first


def decode_speed(pipe, batch, context, new_tokens):
    """Tokens a second once every request has its first token, so that no prompt is being read any more."""
    seen = run(pipe, batch, context, new_tokens)
    firsts = {}
    for moment, request, _ in seen:
        firsts.setdefault(request, moment)
    begin, end = max(firsts.values()), max(moment for moment, _, _ in seen)
    return sum(count for moment, _, count in seen if moment > begin) / (end - begin)


def throughput(pipe, requests, prompt_length, new_tokens):
    """Output tokens a second of equal requests that arrive at once, from their arrival to the last token."""
    seen = run(pipe, requests, prompt_length, new_tokens)
    return sum(count for _, _, count in seen) / max(moment for moment, _, _ in seen)


def batching(pipe, given):
    counts = [int(count) for count in given.requests.split(",")]
    return {f"requests_{count}": throughput(pipe, count, given.prompt, given.new) for count in counts}


def forward_pass(pipe):
    return dict(
        prefill_512=prefill_speed(pipe, 512),
        prefill_4000=prefill_speed(pipe, 4000),
        decode_1=decode_speed(pipe, 1, 16, 128),
        decode_64=decode_speed(pipe, 64, 100, 32),
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--requests", help="requests at once, as in 1,10,64, instead of the forward pass")
    parser.add_argument("--prompt", type=int, default=100)
    parser.add_argument("--new", type=int, default=64)
    given = parser.parse_args()
    pipe = open_pipeline(given.model, given.threads)
    run(pipe, 4, 100, 16)
    speeds = batching(pipe, given) if given.requests else forward_pass(pipe)
    print(json.dumps({point: round(speed, 1) for point, speed in speeds.items()}))


if __name__ == "__main__":
    main()
