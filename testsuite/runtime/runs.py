"""Runs the hand-written network of mlp.c as one device, stages, replicas and both, and wrongly.

usage: runs.py PROGRAM DIR    needs mpirun; numpy where present checks the files from outside
"""
import json, os, re, shutil, struct, subprocess, sys

program, out = sys.argv[1], sys.argv[2]
env = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
SHAPES = [(1, 1), (1, 2), (2, 1), (2, 2), (1, 4), (2, 3)]
failed = 0


def fail(text):
    global failed
    failed += 1
    print("FAILED:", text)


def run(shape, *args, np=None, code=0, says="", **more):
    n = np or shape[0] * shape[1]
    cmd = [program, str(shape[0]), str(shape[1]), *args]
    if n > 1:
        cmd = ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(n)] + cmd
    p = subprocess.run(cmd, env=dict(env, **more), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
    if p.returncode != code or not re.search(says, p.stdout):
        fail(f"{shape} {args} {more}: status {p.returncode} for {code}, wanted '{says}' in:\n{p.stdout}")
    return p.stdout


def read(name):
    with open(os.path.join(out, name), "rb") as f:
        return f.read()


def losses(name):
    return [tuple(map(float, l.split())) for l in read(name + "/losses.txt").decode().splitlines()]


def tensors(name):
    b = read(name)
    n = struct.unpack("<Q", b[:8])[0]
    got = {}
    for k, v in json.loads(b[8:8 + n]).items():
        if k != "__metadata__":
            lo, hi = v["data_offsets"]
            got[k] = struct.unpack(f"<{(hi - lo) // 4}f", b[8 + n + lo:8 + n + hi])
    return got


def path(name):
    return os.path.join(out, name)


def shapes_agree():
    for s in SHAPES:
        name = "%d%d" % s
        run(s, "--out", path(name), "--then-loss", "--dump-grads", path("g" + name), MLP_DUMPS="1", says=r"loss now 0\.8")
        run(s, "--out", path("r" + name), "--then-loss", "--quiet", MLP_REPRODUCIBLE="1")
        if len(losses(name)) != 11 or losses(name)[10][1] > 0.7 * losses(name)[0][1]:
            fail(f"{s}: losses {losses(name)}")
        for (i, a), (j, b) in zip(losses(name), losses("11")):
            if i != j or abs(a - b) > 1e-6:
                fail(f"{s}: loss {a} for {b} in step {i}")
        for what in ("g" + name, name + "/trained.safetensors"):
            one, this = tensors(what.replace(name, "11", 1)), tensors(what)
            if list(one) != list(this):
                fail(f"{s}: {what} has {list(this)} for {list(one)}")
            for t in one:
                worst = max(abs(a - b) for a, b in zip(one[t], this[t]))
                if worst > 1e-6 or not any(this[t]):
                    fail(f"{s}: {what}, {t} off by {worst}")
        for f in ("losses.txt", "trained.safetensors"):
            if read(f"r{name}/{f}") != read(f"r11/{f}"):
                fail(f"{s}: reproducible {f} differs from that of one device")


def gradient_is_the_mean():
    """What --dump-grads says times the rate is what a step takes off every weight."""
    for s in SHAPES:
        run(s, "--out", path("s0"), "--steps", "0", "--quiet")
        run(s, "--out", path("s1"), "--steps", "1", "--quiet", "--dump-grads", path("sg"), MLP_DUMPS="1")
        before, after, g = tensors("s0/trained.safetensors"), tensors("s1/trained.safetensors"), tensors("sg")
        for t in before:
            worst = max(abs(b - 0.2 * d - a) for b, a, d in zip(before[t], after[t], g[t]))
            if worst > 1e-6:
                fail(f"{s}: {t} moved by {worst} other than its gradient")


def resume():
    """Five steps and five resumed ones are ten steps."""
    for first in ((1, 1), (2, 2)):
        run(first, "--out", path("half"), "--steps", "5", "--state", MLP_REPRODUCIBLE="1")
        run((2, 1), "--out", path("half"), "--steps", "10", "--then-loss", "--resume", path("half/state.safetensors"),
            MLP_REPRODUCIBLE="1", MLP_KEEP="1")
        for f in ("losses.txt", "trained.safetensors"):
            if read("half/" + f) != read("r11/" + f):
                fail(f"resumed {first}: {f} differs")


def stored(name, of):
    """Writes {name: (shape, numbers)} as safetensors."""
    head, data = {}, b""
    for k, (shape, x) in of.items():
        head[k] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + 4 * len(x)]}
        data += struct.pack(f"<{len(x)}f", *x)
    text = json.dumps(head).encode()
    with open(path(name), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def parts():
    """Weights in parts, as members of a tensor group write them, are the whole ones; what is none of their parts is refused."""
    want, of = tensors("11/trained.safetensors"), {}
    for k, x in want.items():
        if not k.endswith(".w"):
            of[k] = [len(x)], x
            continue
        wide = len(want[k[:-1] + "b"])
        high = len(x) // wide
        if k == "fc1.w":        # two parts of the rows
            of |= {f"{k}[0:1:{i}/2]": ([high // 2, wide], x[i * len(x) // 2:(i + 1) * len(x) // 2]) for i in range(2)}
        else:                   # one of each column
            of |= {f"{k}[1:1:{i}/{wide}]": ([high, 1], x[i::wide]) for i in range(wide)}
    stored("p", of)
    run((1, 1), "--weights", path("p"), "--steps=0", "--quiet", "--out", path("w"), MLP_KEEP="1")
    if tensors("w/trained.safetensors") != want:
        fail("weights in parts are not the whole ones")
    part, (shape, x) = "fc1.w[0:1:0/2]", of["fc1.w[0:1:0/2]"]
    for other, why in (("[2:1:0/2]", "is no part"), ("[-1:1:0/2]", "is no part"), ("[0:0:0/2]", "is no part"), ("[0:1:2/2]", "is no part"),
                       ("[0:1:0/3]", "is no part"), ("[1:1:0/2]", "is no part"), ("[1:1:0/33]", "has another shape"), ("[0:1:0/1]", "has another shape")):
        stored("p", {k.replace(part, "fc1.w" + other): v for k, v in of.items()})
        run((1, 1), "--weights", path("p"), "--steps=0", code=1, says=rf"R403 .*'{re.escape('fc1.w' + other)}' {why}")
    stored("p", {k: v for k, v in of.items() if k != part})
    run((1, 1), "--weights", path("p"), "--steps=0", code=1, says=r"R40\d .*fc1\.w")


def npy(name, descr, shape, data):
    head = "{'descr': '%s', 'fortran_order': False, 'shape': %s, }" % (descr, shape)
    with open(path(name), "wb") as f:
        f.write(b"\x93NUMPY\x01\0" + struct.pack("<H", len(head)) + head.encode() + data)


def real_data():
    os.makedirs(path("d"), exist_ok=True)
    x = [((i * 7919) % 101) / 101 - 0.5 for i in range(40 * 20)]
    y = [i % 5 for i in range(40)]
    xs, ys = struct.pack("<800f", *x), struct.pack("<40q", *y)
    npy("d/x.npy", "<f4", "(40, 20)", xs)
    npy("d/labels.npy", "<i8", "(40,)", ys)
    say = run((1, 1), "--data", path("d"), "--out", path("n1"))
    if "synthetic" in say:
        fail("real data are called synthetic")
    run((2, 2), "--data", path("d"), "--out", path("n4"))
    run((1, 2), "--data", path("d"), "--out", path("n2"), "--shuffle")
    if abs(losses("n1")[9][1] - losses("n4")[9][1]) > 1e-6 or losses("n2")[1] == losses("n1")[1]:
        fail("data: replicas see other samples, or shuffling does nothing")
    same = losses_with("--data", path("d"), "--samples", "4")
    if len({l for _, l in same}) != 10:
        fail("--samples 4: the loss stands still")
    os.remove(path("d/labels.npy"))
    run((2, 1), "--data", path("d"), code=1, says=r"R201 stage1\.r0 .*input 'labels': no file labels\.npy")
    with open(path("d/labels.bin"), "wb") as f:
        f.write(ys)
    run((2, 1), "--data", path("d"), "--out", path("n3"))
    if losses("n3") != losses("n1"):
        fail("raw labels are other labels")
    os.remove(path("d/labels.bin"))
    npy("d/labels.npy", "<i8", "(40,)", struct.pack("<40q", *y[:37], 5, 1, 2))
    run((2, 1), "--data", path("d"), "--out", path("x"), code=1, says=r"R203 .*labels\.npy: sample 37, element 0 is 5; input 'labels' takes 0 to 4")
    npy("d/labels.npy", "<i8", "(40,)", struct.pack("<40q", *y[:37], -2 ** 63, 1, 2))
    run((2, 1), "--data", path("d"), "--out", path("x"), code=1, says=r"R203 .*sample 37, element 0 is -9223372036854775808; input 'labels' takes")
    npy("d/labels.npy", "<i8", "(39,)", ys[:-8])
    run((1, 1), "--data", path("d"), code=1, says=r"R205 .*'x' has 40 samples, input 'labels' has 39")
    npy("d/labels.npy", "<f4", "(40,)", xs[:160])
    run((1, 1), "--data", path("d"), code=1, says=r"R204 .*real numbers")
    npy("d/x.npy", "<f4", "(40, 19)", xs[:40 * 19 * 4])
    run((1, 1), "--data", path("d"), code=1, says=r"R204 .*40 samples of 19 elements; input 'x' wants 20")
    npy("d/x.npy", "<f4", "(40, 20)", xs[:-1])
    run((1, 1), "--data", path("d"), code=1, says=r"R202 .*x\.npy: .*truncated")
    run((1, 1), "--data", path("nowhere"), code=1, says=r"R201 .*nowhere")


def losses_with(*args):
    run((1, 1), *args, "--out", path("l"))
    return losses("l")


def faults():
    run((2, 1), np=3, code=78, says=r"R101 .*rank (\d) of 2 of its plan, but was started as rank \1 of 3")
    run((2, 2), np=1, code=78, says=r"R101 .*make run")
    run((2, 1), "--out", path("x"), code=76, says=r"R301 .*NaN in microbatch 0 of step 4, reported by stage1\.r0", MLP_NAN="1")
    run((1, 1), "--stepz", "3", code=2, says=r"unknown option '--stepz'")
    run((1, 1), "--steps", "x", code=2, says=r"--steps wants a whole number")
    run((1, 1), "--steps", code=2, says=r"--steps wants a value")
    run((1, 1), "--timeout=0", code=2, says=r"--timeout wants seconds")
    for said, waits in ("0", 60), ("7", 7):     # of the program; 0: it says nothing
        run((1, 1), "--steps=1", "--log-level=debug", MLP_TIMEOUT=said, says=rf"waits {waits} s for others")
    run((1, 1), "--weights", path("nothing"), code=1, says=r"R401 .*No such file")
    run((1, 1), "--weights", path("g21"), "--out", path("w"), "--steps=0", "--then-loss")
    run((1, 1), "--out", "/proc/none/run", code=1, says=r"R406")
    run((1, 1), "--check", "--out", path("checked"), says=r"1 device")
    if os.path.exists(path("checked")):
        fail("--check writes results")
    say = run((1, 1), "--out", path("e"), PD_STEPS="3")
    if "step      3/3" not in say:
        fail("PD_STEPS is not heard")


def interrupted():
    """SIGTERM: the step is finished, results and state are written, the status is 128 + 15."""
    for shape in ((1, 1), (2, 2)):
        p = subprocess.Popen((["mpirun", "--oversubscribe", "-np", "4"] if shape[0] > 1 else []) +
                             [program, *map(str, shape), "--steps", "100000000", "--log-every", "1000", "--out", path("i")],
                             env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for line in p.stdout:
            if line.startswith("step"):
                break
        p.terminate()
        rest = p.stdout.read()
        p.wait(30)
        # Open MPI 5 passes nothing on of what programs print once it is told to stop
        told = shape == (1, 1) or "(Open MPI) 5" not in subprocess.run(["mpirun", "--version"], stdout=subprocess.PIPE, text=True).stdout
        want = 143 if shape == (1, 1) else 1        # mpirun gives 1 when it is told to stop, whatever its programs say
        if p.returncode != want or (told and "stopped by a signal" not in rest) or not os.path.exists(path("i/state.safetensors")):
            fail(f"SIGTERM to {shape}: status {p.returncode}, {rest}")
        shutil.rmtree(path("i"))


shutil.rmtree(out, ignore_errors=True)
os.makedirs(out)
shapes_agree()
gradient_is_the_mean()
resume()
parts()
real_data()
faults()
interrupted()
print("failed" if failed else "passed")
sys.exit(bool(failed))
