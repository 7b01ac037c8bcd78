"""What a machine has of CUDA: one folder that looks like a toolkit with cuDNN and NCCL, wherever their parts lie (the toolkit,
packages of the system, conda's, Python's nvidia-* packages); and how much of it there is to work with."""
import functools, glob, os, platform, re, shutil, site, subprocess, sys, sysconfig

KIND = platform.machine()
TARGETS = {'x86_64': ('x86_64-linux',), 'aarch64': ('sbsa-linux', 'aarch64-linux')}.get(KIND, ())   # folders of a toolkit
OPTIONAL = 'NCCL', 'nvrtc'
SYSTEM = ['/usr/include', f'/usr/include/{KIND}-linux-gnu'], [f'/usr/lib/{KIND}-linux-gnu', '/usr/lib64', '/usr/lib']
# asks the libraries that programs will load for the CUDA that they were made for
ASK = '''
import ctypes, sys
for part, lib, call in ("cudart", "cudart", None), ("cuBLAS", "cublasLt", "cublasLtGetCudartVersion"), ("cuDNN", "cudnn", "cudnnGetCudartVersion"):
    try:
        lib, v = ctypes.CDLL(f"{sys.argv[1]}/lib{lib}.so"), ctypes.c_int()
        f = getattr(lib, call or "cudaRuntimeGetVersion")
        f.restype = ctypes.c_size_t
        print(part, f() if call else f(ctypes.byref(v)) or v.value, flush=True)
    except (OSError, AttributeError) as x:
        print(part, "?", x, flush=True)
'''


def said(cmd, timeout=60, env=None):
    """The output of a command, or '' where it fails or is not there."""
    try:
        p = subprocess.run(cmd, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, timeout=timeout, env=env)
        return p.stdout.decode(errors='replace').strip() if p.returncode == 0 else ''
    except (OSError, subprocess.TimeoutExpired):
        return ''


def roots():
    """Folders of toolkits, the first that has nvcc first."""
    nvcc = shutil.which('nvcc')
    out = [os.environ.get('CUDA', ''), os.environ.get('CUDA_HOME', ''), os.path.dirname(os.path.dirname(os.path.realpath(nvcc))) if nvcc else '',
           '/usr/local/cuda', *sorted(glob.glob('/usr/local/cuda-*'), reverse=True), *wheels()]
    return [r for r in out if r and os.path.exists(f'{r}/bin/nvcc')]


@functools.lru_cache(maxsize=None)
def pythons():
    """site-packages of every Python that is at hand."""
    out = {sysconfig.get_path('purelib'), *site.getsitepackages()}
    for p in {shutil.which(n) for n in ('python3', 'python')} - {None}:
        out |= set(said([p, '-c', 'import site; print("\\n".join(site.getsitepackages()))']).splitlines())
    return sorted(d for d in out if os.path.isdir(d))


def wheels():
    """Folders of Python's nvidia-* packages: nvidia/cu13 has most of CUDA 13, nvidia/cudnn and nvidia/nccl their own."""
    return [d for s in pythons() for d in sorted(glob.glob(f'{s}/nvidia/*'))]


def environments():
    """Folders of conda's environment, and of the one that this Python is of."""
    return [d for d in dict.fromkeys((os.environ.get('CONDA_PREFIX', ''), sys.prefix)) if d and d != '/usr']


def places():
    """[(folders of headers, folders of libraries)]: a library is taken from where its header is, the two are of one version."""
    under = lambda r: [r, *(f'{r}/targets/{t}' for t in TARGETS)]
    out = [([f'{p}/include' for p in under(r)], [f'{p}/{d}' for p in under(r) for d in ('lib64', 'lib')]) for r in roots() + environments()]
    return out + [SYSTEM] + [([f'{d}/include'], [f'{d}/lib', f'{d}/lib64']) for d in wheels()]


def whereabouts(header, names):
    """(folder of the header or '', folder of the libraries) of the first place that has both; else of the first that has each, or
    None of what is nowhere."""
    with_header = lambda dirs: next((d for d in dirs if os.path.exists(f'{d}/{header}')), None) if header else ''
    with_libs = lambda dirs: next((d for d in dirs if all(glob.glob(f'{d}/lib{n}.so*') for n in names)), None)
    found = [(with_header(inc), with_libs(lib)) for inc, lib in places()]
    whole = next((x for x in found if None not in x), None)
    return whole or tuple(next((x[k] for x in found if x[k] is not None), None) for k in (0, 1))


def toolkit(to):
    """(folder, [(part, where or None)]): bin/nvcc, include/ and lib64/ of links."""
    for d in 'bin', 'include', 'lib64':
        os.makedirs(f'{to}/{d}', exist_ok=True)
    nvcc = f'{roots()[0]}/bin/nvcc' if roots() else None
    if nvcc:
        with open(f'{to}/bin/nvcc', 'w') as f:
            f.write(f'#!/bin/sh\nexec {nvcc} ${{NVCC_CCBIN:+-ccbin "$NVCC_CCBIN"}} -isystem {to}/include "$@"\n')
        os.chmod(f'{to}/bin/nvcc', 0o755)
    found = [('nvcc', nvcc)]
    # the first that has a file gives it: a library's own headers before those of a whole toolkit
    for part, header, names in (('cuBLAS', 'cublas_v2.h', ('cublas', 'cublasLt')), ('cuDNN', 'cudnn.h', ('cudnn',)), ('NCCL', 'nccl.h', ('nccl',)),
                                ('nvrtc', '', ('nvrtc', 'nvrtc-builtins')), ('cudart', 'cuda_runtime_api.h', ('cudart',))):
        inc, lib = whereabouts(header, names)
        if inc and inc != '/usr/include':
            for f in os.listdir(inc):
                if (part == 'cudart' or f.startswith(part.lower())) and not os.path.lexists(f'{to}/include/{f}'):
                    os.symlink(f'{inc}/{f}', f'{to}/include/{f}')
        files = [links(lib, n, to) for n in names] if lib else []
        found.append((part, ', '.join([inc] * bool(header) + files[:1]) if inc is not None and lib else None))
    return to, found


def links(d, name, to):
    """Links libNAME.so* and its parts (libNAME_*.so*); its file. A package has libNAME.so.9 alone, the linker wants libNAME.so."""
    have = sorted(f for f in os.listdir(d) if re.match(rf'lib{name}(_\w+)?\.so(\.|$)', f))
    plain = [f for f in have if f.startswith(f'lib{name}.so')]
    for f in have:
        if not os.path.lexists(f'{to}/lib64/{f}'):
            os.symlink(f'{d}/{f}', f'{to}/lib64/{f}')
    if not os.path.lexists(f'{to}/lib64/lib{name}.so'):
        os.symlink(f'{d}/{plain[-1]}', f'{to}/lib64/lib{name}.so')
    return f'{d}/{plain[-1]}'


def mixed(to):
    """(whether CUDA is of one major version, what there is): nvcc's, and what cudart, cuBLAS and cuDNN were made for. Nothing is
    known of a library that does not tell."""
    release = re.search(r'release (\d+)\.(\d+)', said([f'{to}/bin/nvcc', '--version']))
    made = {'nvcc': (int(release.group(1)), int(release.group(2)))} if release else {}
    lines = said([sys.executable, '-c', ASK, f'{to}/lib64'], env=dict(os.environ, LD_LIBRARY_PATH=f'{to}/lib64')).splitlines()
    silent = [l for l in lines if l.split()[1] == '?']
    made.update({part: (int(v) // 1000, int(v) % 1000 // 10) for part, v in (l.split() for l in lines if l not in silent)})
    text = ', '.join(f'{k} {v[0]}.{v[1]}' for k, v in made.items()) + ''.join(f'; {l}' for l in silent)
    if len({v[0] for v in made.values()}) <= 1:
        return True, f'of one CUDA: {text}'
    return False, f'libraries of different CUDAs are mixed, programs will not run: {text}; CUDA=DIR names another toolkit'


def knows(to, arch):
    """'' or why nvcc cannot compile for this GPU."""
    have = said([f'{to}/bin/nvcc', '--list-gpu-arch']).split()
    want = 'compute_' + re.sub(r'^sm_', '', arch)
    if not have or want.rstrip('af') in have:
        return ''
    return f'nvcc does not know {arch}, which this GPU is; it knows {" ".join(have)}: a newer toolkit (CUDA=DIR), or --arch'


def cores():
    """How many compilers may run at once: processors that may be used, and a GB for each."""
    n = len(os.sched_getaffinity(0))
    try:
        with open('/sys/fs/cgroup/cpu.max') as f:
            quota, period = f.read().split()
        if quota != 'max':
            n = min(n, max(1, int(quota) // int(period)))
    except (OSError, ValueError):
        pass
    with open('/proc/meminfo') as f:
        free = [int(x) * 1024 for x in re.findall(r'MemAvailable:\s*(\d+) kB', f.read())]
    try:
        free.append(sum(s * int(open(f'/sys/fs/cgroup/memory.{w}').read()) for w, s in (('max', 1), ('current', -1))))
    except (OSError, ValueError):       # no group, or no limit
        pass
    return max(1, min([n, *(x // 1000000000 for x in free)]))


def arch():
    """sm_NN of the first GPU, or ''."""
    cap = said(['nvidia-smi', '--query-gpu=compute_cap', '--format=csv,noheader']).splitlines()
    return 'sm_' + cap[0].strip().replace('.', '') if cap and re.fullmatch(r'\d+\.\d', cap[0].strip()) else ''


def kind():
    """What two machines have in common whose results belong together: the GPU, the driver but for its last numbers, the compiler."""
    smi = said(['nvidia-smi', '--query-gpu=name,memory.total,driver_version', '--format=csv,noheader']).splitlines()
    nvcc = said([roots()[0] + '/bin/nvcc', '--version']).splitlines() if roots() else []
    return '; '.join([re.sub(r', (\d+)[.\d]*$', r', driver \1', smi[0]) if smi else 'no GPU', nvcc[-1] if nvcc else 'no nvcc'])


def describe():
    """[(what, text)] of the machine."""
    cpu = re.search(r'model name\s*:\s*(.*)', open('/proc/cpuinfo').read())
    nvcc = said([roots()[0] + '/bin/nvcc', '--version']).splitlines() if roots() else []
    smi = said(['nvidia-smi', '--query-gpu=name,memory.total,driver_version,clocks.max.sm,clocks.max.memory', '--format=csv,noheader'])
    return [('GPU', smi or 'none that nvidia-smi finds'), ('CPU', f'{os.cpu_count()} x {cpu.group(1) if cpu else "?"}'),
            ('system', next((l.split('=')[1].strip('"\n') for l in open('/etc/os-release') if l.startswith('PRETTY_NAME')), '?')),
            ('nvcc', nvcc[-1] if nvcc else 'none'), ('gcc', said(['gcc', '-dumpfullversion']) or 'none'),
            ('python', sys.version.split()[0])]
