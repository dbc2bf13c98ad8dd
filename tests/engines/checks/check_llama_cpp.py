"""Runs in the environment of llama.cpp: its parser of options, and generation by its server.

Arguments: folder of all cases, folder of those that run, folder of the reference models as GGUF,
prompt, llama-server. Prints one JSON document.
"""

import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

TAKEN = ("failed to load model", "failed to open", "error loading model", "No such file")


def command(case, models, name="command"):
    """The command of a case, and its environment."""
    binary = str(Path(sys.argv[5]).parent)
    files = {"TARGET": f"{models}/target.gguf", "DRAFT": f"{models}/draft.gguf"}
    environment = {**os.environ, **files, "PATH": f"{binary}:{os.environ['PATH']}"}
    return (case / name).read_text(), environment


def check(case):
    """Why the options of a case are not taken; "" where the server goes on to load the models."""
    for name in ("command", "forced"):
        if not (case / name).exists():
            continue
        line, environment = command(case, "/missing", name)
        done = subprocess.run(
            ["sh", "-c", line], env=environment, capture_output=True, text=True, timeout=60
        )
        log = done.stdout + done.stderr
        if not any(words in log for words in TAKEN):
            return log[-400:]
    return ""


def generate(case, models, prompt):
    """The text that follows, and how many tokens were drafted."""
    line, environment = command(case, models)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        ["sh", "-c", f"exec {line} --host 127.0.0.1 --port {port}"], env=environment,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        for _ in range(240):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2).read()
                break
            except OSError:
                if server.poll() is not None:
                    return f"the server ended with {server.returncode}", 0
                time.sleep(0.5)
        body = {"prompt": prompt, "n_predict": 64, "temperature": 0, "cache_prompt": False}
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/completion",
            data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=240) as answer:
            completion = json.load(answer)
        return completion["content"], completion["timings"].get("draft_n", 0)
    finally:
        server.terminate()
        server.wait()


def options():
    """Names of the server's options, and the values of those that list them."""
    text = subprocess.run([sys.argv[5], "--help"], capture_output=True, text=True).stdout
    by_name = {}
    for line in text.splitlines():
        if re.match(r"-", line):
            listed = re.search(r"--spec-type (\S+)|\{(\S+)\}", line)
            choices = re.split(r"[,|]", next(filter(None, listed.groups()))) if listed else None
            for name in re.findall(r"(?:^|,\s+)--([a-z][a-z0-9-]*)", line):
                by_name[name] = {"choices": choices} if choices else {}
    return by_name


def main():
    cases, runs, models, prompt = sys.argv[1:5]
    result = {"cases": {}, "texts": {}, "drafted": {}, "version": "0c1e57098", "options": options()}
    for case in sorted(Path(cases).iterdir()):
        result["cases"][case.name] = check(case)
    for case in sorted(Path(runs).iterdir()):
        text, drafted = generate(case, models, prompt)
        result["texts"][case.name], result["drafted"][case.name] = text, drafted
    print(json.dumps(result))


main()
