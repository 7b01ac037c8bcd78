#!/usr/bin/env python3
"""Golden tests of passes: run.py PDCC_OPT [-u] [NAME...]

A test is NAME/*.pdir: comment lines that say what is shown, `# RUN <flags of pdcc-opt>`, the input, then `# WANT` and
the whole output, or `# WANT ERROR` and the diagnostics. -u rewrites what follows WANT; review the diff like code."""
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))


def run(opt, path, flags, text):
    with tempfile.TemporaryDirectory() as tmp:
        name = os.path.basename(path)
        with open(os.path.join(tmp, name), "w") as f:
            f.write(text)
        argv = [os.path.abspath(opt), name] + [a.replace("@", os.path.dirname(path) + "/") for a in flags]
        r = subprocess.run(argv, cwd=tmp, capture_output=True, text=True, timeout=60)
    return r.returncode, r.stdout, r.stderr


def test(opt, path, update):
    text = open(path).read()
    head, mark, want = text.partition("\n# WANT")
    if not mark:
        return "no WANT line"
    kind, _, want = want.partition("\n")
    runs = [line[6:].split() for line in head.splitlines() if line.startswith("# RUN ")]
    if len(runs) != 1:
        return "needs one RUN line"
    code, out, err = run(opt, path, runs[0], head + "\n")
    failed = code != 0
    if failed != (kind.strip() == "ERROR"):
        return f"exit status {code}\n{err}"
    got = err if failed else out
    if got == want:
        return None
    if update:
        with open(path, "w") as f:
            f.write(head + mark + kind + "\n" + got)
        return None
    return "output differs; got:\n" + got


def main():
    args = [a for a in sys.argv[1:] if a != "-u"]
    names = args[1:] or sorted(d for d in os.listdir(HERE) if os.path.isdir(os.path.join(HERE, d)))
    failed = passed = 0
    for name in names:
        folder = os.path.join(HERE, name)
        for f in sorted(os.listdir(folder)):
            if not f.endswith(".pdir"):
                continue
            why = test(args[0], os.path.join(folder, f), "-u" in sys.argv)
            if why:
                print(f"FAIL {name}/{f}: {why}")
            failed += why is not None
            passed += why is None
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return 1 if failed or not passed else 0


sys.exit(main())
