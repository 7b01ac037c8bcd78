"""Sums through memory of the host, over MPI, and by both at once: the same bits, and it is told which.

usage: shared.py SUMS MLP DIR    needs mpirun
"""
import os, re, shutil, subprocess, sys

sums, mlp, out = sys.argv[1:4]
env = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
env.pop("PD_SHARED", None)
WAYS = {"memory": "1", "MPI": "0", "both": "01"}        # PD_SHARED of rank 0, of the others
failed = 0


def fail(text):
    global failed
    failed += 1
    print("FAILED:", text)


def run(n, way, *cmd):
    """What it prints; pairs is of each rank how many others it has memory with."""
    first, others = WAYS[way][0], WAYS[way][-1]
    by_rank = f'PD_SHARED={others}; [ "${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}}" != 0 ] || PD_SHARED={first}; export PD_SHARED; exec "$@"'
    p = subprocess.run(["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(n), "sh", "-c", by_rank, "sh", *cmd],
                       env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=110)
    if p.returncode:
        fail(f"{cmd[0]} on {n}, {way}: status {p.returncode}: {p.stdout}")
    pairs = sorted(int(x) for x in re.findall(r"sums with (\d+) of %d other ranks go through memory" % (n - 1), p.stdout))
    want = {"memory": [n - 1] * n, "MPI": [0] * n, "both": [0] + [n - 2] * (n - 1)}[way]
    if pairs != want:
        fail(f"{cmd[0]} on {n}, {way}: memory with {pairs} others, {want} is right:\n{p.stdout}")
    return p.stdout


def reachable():
    file = os.memfd_create("probe")
    code = f"import os; os.open('/proc/{os.getpid()}/fd/{file}', os.O_RDWR)"
    return subprocess.run([sys.executable, "-c", code], stderr=subprocess.DEVNULL).returncode == 0


def bits():
    for n in (2, 3):
        got = {w: re.findall(r"^bits (\w+)", run(n, w, sums), re.M) for w in WAYS if n > 2 or w != "both"}
        if len({tuple(b) for b in got.values()}) != 1 or len(got["memory"]) != 1:
            fail(f"sums over {n}: the bits are {got}")


def training():
    for stages, replicas in (1, 2), (2, 2):
        kept = set()
        for way in ("memory", "MPI"):
            folder = os.path.join(out, way)
            run(stages * replicas, way, mlp, str(stages), str(replicas), "--out", folder, "--log-level", "debug")
            with open(os.path.join(folder, "losses.txt"), "rb") as a, open(os.path.join(folder, "trained.safetensors"), "rb") as b:
                kept.add(a.read() + b.read())
        if len(kept) != 1:
            fail(f"{stages} stages, {replicas} replicas: other bits than over MPI")


if not reachable():
    print("skipped: processes of this host cannot open each other's memory files")
    sys.exit(77)
shutil.rmtree(out, ignore_errors=True)
os.makedirs(out)
bits()
training()
sys.exit(1 if failed else 0)
