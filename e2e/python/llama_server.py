"""Runs llama.cpp's own HTTP server from the wheel `xllamacpp` on a loopback port the system chooses.

Takes one argument, a JSON object: model, ctx, slots, threads, template (text or null), alias,
longest_answer (tokens, -1 for no limit), flash_attention (bool or null), cached_keys (ggml's number for their type).
Prints one line, `READY <url>`, then serves until it is killed.
"""

import json
import signal
import sys

import xllamacpp

options = json.loads(sys.argv[1])
params = xllamacpp.CommonParams()
params.model.path = options["model"]
params.model_alias = {options["alias"]}
params.hostnames = ["127.0.0.1"]
params.port = 0
params.n_ctx = options["ctx"]
params.n_parallel = options["slots"]
params.cpuparams.n_threads = options["threads"]
params.n_predict = options["longest_answer"]
params.endpoint_slots = True
params.endpoint_metrics = True
params.cache_type_k = xllamacpp.ggml_type(options["cached_keys"])
if options["flash_attention"] is not None:
    params.flash_attn_type = xllamacpp.llama_flash_attn_type(int(options["flash_attention"]))
if options["template"] is not None:
    params.chat_template = options["template"]

server = xllamacpp.Server(params)
print("READY", server.listening_address, flush=True)
signal.pause()
