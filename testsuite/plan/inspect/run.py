#!/usr/bin/python3
"""pdcc inspect, word for word: every case is a command and what it prints.

    testsuite/plan/inspect/run.py PDCC [-u] [NAME...]      -u rewrites what is wanted from what is said; review the diff

A case is a file cases/NAME.txt: lines `make ARGS` (of pdcc, what is looked at), a line `run ARGS` (MODELS is
testsuite/models; commands run in an empty folder), a line `exit N`, then what is printed: standard output, then standard
error. No line may be wider than 100 columns. Numbers depend on the model and on
the cost model's numbers for a device that nothing is said of, not on this machine. Last line: `N passed, N failed`.
"""
import argparse, difflib, glob, os, re, shlex, subprocess, sys, tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
MODELS = os.path.join(os.path.dirname(os.path.dirname(HERE)), 'models')
WIDTH = 100


def said(pdcc, args, folder):
    """Exit status and text, with the folder of the models called MODELS."""
    cmd = [os.path.abspath(pdcc), *[a.replace('MODELS', MODELS) for a in shlex.split(args)]]
    p = subprocess.run(cmd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, timeout=60, cwd=folder,
                       env={k: v for k, v in os.environ.items() if k != 'PDCC_FLAGS'})
    return p.returncode, re.sub(r'\bhash \w{16}', 'hash HASH', (p.stdout + p.stderr).decode(errors='replace').replace(MODELS, 'MODELS'))


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument('-u', action='store_true')
    ap.add_argument('pdcc')
    ap.add_argument('names', nargs='*')
    a = ap.parse_args()
    passed = failed = 0
    for path in sorted(glob.glob(os.path.join(HERE, 'cases', '*.txt'))):
        name = os.path.basename(path)[:-4]
        if a.names and name not in a.names:
            continue
        want = open(path).read()
        head = want[:want.index('run ')]
        args = want[len(head):].split('\n', 1)[0].removeprefix('run ')
        with tempfile.TemporaryDirectory() as folder:
            for line in head.splitlines():
                said(a.pdcc, line.removeprefix('make '), folder)
            rc, out = said(a.pdcc, args, folder)
        got = f'{head}run {args}\nexit {rc}\n{out}'
        wide = [l for l in out.splitlines() if len(l) > WIDTH and ': ' not in l[:60]]     # messages may be wider
        if a.u:
            open(path, 'w').write(got)
        elif got != want or wide:
            failed += 1
            print(f'FAIL {name}')
            sys.stdout.writelines(difflib.unified_diff(want.splitlines(True), got.splitlines(True), 'wanted', 'said', n=1))
            for l in wide:
                print(f'wider than {WIDTH}: {l}')
            continue
        passed += 1
    print(f'{passed} passed, {failed} failed')
    return int(failed > 0)


if __name__ == '__main__':
    sys.exit(main())
