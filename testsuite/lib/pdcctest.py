"""What the suites share: find pdcc, emit and build a program, run it, read what it wrote."""
import glob, atexit, functools, json, os, re, shutil, struct, subprocess, sys, tempfile, threading, zlib
import numpy as np

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ROOT = os.path.dirname(HERE)


def suite(name):
    """The path of the suite of that name, whatever its folder."""
    return next((f for f in sorted(glob.glob(f'{HERE}/*/{name}')) if os.path.isfile(f)), f'{HERE}/{name}')

CUDA_LOCK = threading.Lock()


# programs are linked by the thousand; where binutils has it, by the linker that needs a fifth of the time
if shutil.which('ld.gold'):
    os.environ.setdefault('LDFLAGS', '-fuse-ld=gold')


def pdcc_path(name='pdcc'):
    """The program under test: $PDCC, else build/ of this checkout."""
    path = os.environ.get('PDCC') or os.path.join(ROOT, 'build', 'pdcc')
    path = os.path.join(os.path.dirname(path), name)
    if not os.path.exists(path):
        sys.exit(f'{path}: not built; run `sh testsuite/run.sh` or set PDCC')
    return path


def cores():
    """As pdcc counts them, but for limits of control groups."""
    return int(os.environ.get('PDCC_CORES') or len(os.sched_getaffinity(0)))


def timed():
    """For what measures times: cores that only PDCC_CORES has do nothing."""
    if cores() > len(os.sched_getaffinity(0)):
        del os.environ['PDCC_CORES']


def run(cmd, timeout=300, cwd=None, env=None):
    """(exit code, stdout + stderr); 124 when the time is over."""
    session = tempfile.mkdtemp(prefix='pdmpi')     # Open MPI: jobs that share a session folder race when one ends
    e = {**os.environ, 'OMPI_ALLOW_RUN_AS_ROOT': '1', 'OMPI_ALLOW_RUN_AS_ROOT_CONFIRM': '1', 'OMPI_MCA_orte_tmpdir_base': session, **(env or {})}
    try:
        p = subprocess.run(cmd, cwd=cwd, env=e, timeout=timeout, stdin=subprocess.DEVNULL,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        # Open MPI 5 ends what it says of an abort with a zero byte, in front of the next line
        return p.returncode, re.sub(r'^\0+', '', p.stdout.decode(errors='replace'), flags=re.M)
    except subprocess.TimeoutExpired as x:
        return 124, (x.stdout or b'').decode(errors='replace') + f'\n(timed out after {timeout} s)'
    finally:
        shutil.rmtree(session, ignore_errors=True)


class Failed(Exception):
    """A step of a test went wrong; the text says which and shows the end of its output."""


def check(what, rc, out):
    if rc:
        raise Failed(f'{what}: exit {rc}\n' + '\n'.join(out.splitlines()[-15:]))
    return out


def cc():
    """The C compiler, through ccache if it is installed and has a home: suites emit the same text again, and so does their next run."""
    c = os.environ.get('CC', 'gcc')
    home = os.access(os.environ.get('CCACHE_DIR') or os.path.expanduser('~'), os.W_OK)
    return f'ccache {c}' if home and shutil.which('ccache') and 'ccache' not in c else c


def cluster_file(folder, devices, memory=None):
    path = os.path.join(folder, f'cluster{devices}.yaml')
    part = f'{path}.{threading.get_ident()}'
    with open(part, 'w') as f:
        f.write(f'devices: {devices}\n')
    os.replace(part, path)      # runs of a suite share the file
    return path


def some(items, n, salt=''):
    """All of a suite's cases; where PDCC_SOME is set, as in CI, one in n: of models or cases of other names (salt) other ones."""
    n = n if os.environ.get('PDCC_SOME') else 1
    return [x for i, x in enumerate(items) if (i + zlib.crc32(salt.encode())) % n == 0]


def emit(model, folder, args):
    """pdcc MODEL args -o folder; read by libclang, where only some cases are taken one in eight."""
    checked = some([[]], 8, ' '.join(a for a in args if '/' not in a)) or [['--no-check']]
    return check('pdcc', *run([pdcc_path(), model, '-o', folder, '--force', *checked[0], *args]))


@functools.lru_cache(maxsize=None)
def standin():
    """What make is told so that the stand-in (standin/) is the toolkit: that of $PDCC_CUDA, or one that is built here. Of suites whose
    subject it is: they look at what it says, plant faults in it, or record what it gives."""
    with CUDA_LOCK:
        folder = os.environ.get('PDCC_CUDA')
        if not folder:
            folder = os.path.join(temp('standin'), 'cuda')
            check('standin', *run(['sh', os.path.join(HERE, 'standin', 'build.sh'), folder]))
        return [f'CUDA={folder}']


@functools.lru_cache(maxsize=None)
def cuda():
    """What make is told for --target cuda: the toolkit that $PDCC_CUDA names, else nothing where there is a GPU, else the stand-in."""
    if not os.environ.get('PDCC_CUDA') and shutil.which('nvidia-smi') and run(['nvidia-smi', '-L'])[0] == 0:
        return []
    return standin()


def make(folder, cflags='-O1', extra=()):
    return check('make', *run(['make', '-s', '-C', folder, '-j2', f'CC={cc()}', f'OPT={cflags}', *extra], timeout=900))


def start(folder, args, timeout=300):
    """Runs all devices of an emitted folder; results are in run/ itself, where no argument names another folder."""
    where = [] if any(str(a).split('=')[0] in ('--out', '--name') for a in args) else ['--out', 'run']
    return check('run', *run(['sh', 'run.sh', *where, *args], cwd=folder, timeout=timeout))


def delaying(tmp, tsan=False, how='delays'):
    """What PD_WRAP is to be so that PD_DELAYS=SEED:MICROSECONDS delays every send and receive (lib/delays.c), or PD_LINK=
    MICROSECONDS:BYTES every message as a link does (lib/link.c, how='link')."""
    lib, wrap = f'{tmp}/{how}.so', f'{tmp}/{how}'
    check(how, *run(['mpicc', '-std=c11', '-O1', '-Wall', '-shared', '-fPIC', os.path.join(HERE, 'lib', f'{how}.c'), '-o', lib]))
    if tsan:
        lib = os.path.realpath(run(['gcc', '-print-file-name=libtsan.so'])[1].strip()) + f':{lib}'
    with open(wrap, 'w') as f:
        f.write(f'#!/bin/sh\n# --exec RANK PROGRAM...\nshift 2\nLD_PRELOAD={lib} exec "$@"\n')
    os.chmod(wrap, 0o755)
    return wrap


def results(folder):
    """Where the newest run has left its results: a folder of its own, or run/ itself by --out (start)."""
    latest = os.path.join(folder, 'run', 'latest')
    return latest if os.path.exists(latest) else os.path.join(folder, 'run')


def losses(folder):
    """[loss before step 1, ...] as the run wrote them."""
    with open(os.path.join(results(folder), 'losses.txt')) as f:
        return [float(line.split()[1]) for line in f if line.strip()]


DTYPES = {'F32': '<f4', 'F64': '<f8', 'I64': '<i8', 'I32': '<i4', 'U8': '<u1', 'BOOL': '<u1', 'F16': '<f2'}


def safetensors(path):
    """{name: array} of a safetensors file."""
    with open(path, 'rb') as f:
        blob = f.read()
    n = struct.unpack('<Q', blob[:8])[0]
    head = json.loads(blob[8:8 + n])
    out = {}
    for k, t in head.items():
        if k != '__metadata__':
            a, b = t['data_offsets']
            out[k] = np.frombuffer(blob[8 + n + a:8 + n + b], DTYPES[t['dtype']]).reshape(t['shape'])
    return out


def write_safetensors(path, tensors):
    """{name: array} as a safetensors file."""
    word = {np.dtype(v): k for k, v in DTYPES.items() if k != 'BOOL'}
    head, data = {}, b''
    for name, a in tensors.items():
        head[name] = {'dtype': word[a.dtype], 'shape': list(a.shape), 'data_offsets': [len(data), len(data) + a.nbytes]}
        data += a.tobytes()
    head = json.dumps(head).encode()
    with open(path, 'wb') as f:
        f.write(struct.pack('<Q', len(head)) + head + data)


def keep(folder, name, expected, **job):
    """Where $PDCC_KEEP names a folder: NAME there gets an emitted GPU program, `expected` (what it read and gave: files, or
    folders with their files) and how to hold another run against it. gpu/pack.py packs that for machines with a GPU."""
    to = os.environ.get('PDCC_KEEP')
    if not to:
        return
    to = os.path.join(to, name)
    to += next(x for k in range(1, 1000) for x in [f'-{k}' if k > 1 else ''] if not os.path.exists(to + x))
    shutil.copytree(folder, os.path.join(to, 'build'), ignore=shutil.ignore_patterns('obj', 'bin', 'run', 'ir', 'profile', 'input', 'output', 'products.txt'))
    os.makedirs(os.path.join(to, 'expected'))
    for e in expected:
        for f in [os.path.join(e, x) for x in os.listdir(e)] if os.path.isdir(e) else [e]:
            if os.path.isfile(f):
                shutil.copy(f, os.path.join(to, 'expected'))
    with open(os.path.join(to, 'job.json'), 'w') as f:
        json.dump(job, f, indent=1)


def temp(prefix):
    """A folder that goes when this process ends, unless it was told to --keep what it makes or $PDCC_KEEP_TEMP is set."""
    folder, maker = tempfile.mkdtemp(prefix=f'pdcc-{prefix}-'), os.getpid()
    if '--keep' not in sys.argv and not os.environ.get('PDCC_KEEP_TEMP'):
        atexit.register(lambda: os.getpid() == maker and shutil.rmtree(folder, ignore_errors=True))     # not a child that it forks
    return folder
