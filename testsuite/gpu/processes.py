"""Programs that check.py starts: each leads a group of its own, and no group outlives check.py: its programs are ended with it
(prctl), and what a killed call left behind is ended by the next one, which knows it by a variable of its environment."""
import ctypes, fcntl, glob, os, signal, subprocess, sys, threading, time

MARK = 'PDCC_GPU_CHECK'     # =OUT, in the environment of all that is started
LIBC = ctypes.CDLL(None)
SET_PDEATHSIG = 1
running, lock, ending = set(), threading.Lock(), threading.Event()


def with_us():
    LIBC.prctl(SET_PDEATHSIG, signal.SIGTERM)


def told(group, sig):
    try:
        os.killpg(group, sig)
        return True
    except (ProcessLookupError, PermissionError):
        return False


def end(groups, wait=3):
    """Make, compilers and programs remove what they were at when they are asked to end; what does not is killed."""
    left, until = [g for g in groups if told(g, signal.SIGTERM)], time.monotonic() + wait
    while left and time.monotonic() < until:
        time.sleep(0.05)
        left = [g for g in left if alive(g)]
    for g in left:
        told(g, signal.SIGKILL)


def alive(group):
    """Somebody in it is more than an entry of the table of processes."""
    for f in glob.glob('/proc/[0-9]*/stat'):
        try:
            with open(f) as s:
                w = s.read().rsplit(')', 1)[1].split()
        except OSError:
            continue
        if int(w[2]) == group and w[0] not in 'ZX':
            return True
    return False


def run(cmd, timeout, cwd, env):
    """(exit status, output) of a command; None: it took longer, and all that it started was ended."""
    p = subprocess.Popen(cmd, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                         start_new_session=True, preexec_fn=with_us)
    with lock:
        running.add(p.pid)
    try:
        out, rc = p.communicate(timeout=timeout)[0], p.returncode
    except subprocess.TimeoutExpired:
        end([p.pid])
        try:
            out = p.communicate(timeout=5)[0]
        except subprocess.TimeoutExpired:       # somebody left the group and holds the pipe
            out = b''
        rc = None
    if ending.is_set():         # nothing is to be said of what was ended
        threading.Event().wait()
    with lock:
        running.discard(p.pid)
    return rc, out.decode(errors='replace')


def alone(out, work):
    """Nobody else works in this folder, or the program ends; what an ended call left running is ended."""
    lock_file = open(f'{work}/lock', 'w')
    try:
        fcntl.flock(lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit(f'check.py: another call works in {work}')
    mark, groups = f'{MARK}={out}\0'.encode(), set()
    for f in glob.glob('/proc/[0-9]*/environ'):
        try:
            with open(f, 'rb') as e:
                if mark in e.read() + b'\0':
                    groups.add(os.getpgid(int(f.split('/')[2])))
        except OSError:
            pass
    end(groups - {os.getpgid(0)})
    return lock_file


def asked(status):
    """SIGTERM, SIGINT and SIGHUP end all that runs, then this program."""
    def handler(*_):
        ending.set()
        end(list(running))
        os._exit(status)
    for s in signal.SIGTERM, signal.SIGINT, signal.SIGHUP:
        signal.signal(s, handler)
