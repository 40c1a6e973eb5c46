"""A script for the sandbox that runs any Python it is sent: what an answer could do if a judge's `eval` were not limited."""

import os

state = {"seen": 0}


def _run(code):
    names = {"os": os, "state": state}
    exec(code, names)
    return names.get("result")


def start():
    def handle(request, apart):
        return {"result": apart(_run, request["code"]), "seen": state["seen"]}

    return handle
