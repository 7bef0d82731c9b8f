"""Runs llama.cpp's own HTTP server from the wheel `xllamacpp` on a loopback port the system chooses.

Takes one argument, a JSON object: model, ctx, slots, threads, template (text or null), alias,
longest_answer (tokens, -1 for no limit).
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
if options["template"] is not None:
    params.chat_template = options["template"]

server = xllamacpp.Server(params)
print("READY", server.listening_address, flush=True)
signal.pause()
