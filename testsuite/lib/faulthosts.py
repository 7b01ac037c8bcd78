"""Faults of launchers and hosts: a launcher that is killed, Slurm's in its place, a cable that is taken out, a host that is
gone for good. Used by testsuite/faults."""
import glob, os, re, shutil, signal, subprocess, threading, time
import netns
import pdcctest as T

SRUN = '''#!/bin/sh
# in Slurm's place: srun --ntasks=N [options] COMMAND...
while [ "${1#--}" != "$1" ]; do
	case $1 in --ntasks=*) n=${1#--ntasks=} ;; esac
	shift
done
export SLURM_STEP_NUM_TASKS=$n
exec mpirun --oversubscribe --allow-run-as-root -np $n sh -c 'export SLURM_PROCID=$OMPI_COMM_WORLD_RANK
unset OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE; exec "$@"' task "$@"
'''


def need(ok, what, out):
    if not ok:
        raise T.Failed(f'{what}\n{out}')


def children(pid, name):
    """Processes called `name` among pid's offspring."""
    found, todo = [], [pid]
    while todo:
        p = todo.pop()
        for c in subprocess.run(['ps', '-o', 'pid=,comm=', '--ppid', str(p)], stdout=subprocess.PIPE, text=True).stdout.splitlines():
            number, comm = c.split(None, 1)
            todo.append(int(number))
            if comm.strip() == name:
                found.append(int(number))
    return found


def command(pid):
    try:
        with open(f'/proc/{pid}/comm') as f:
            return f.read().strip()
    except OSError:
        return ''


def wait_for(what, seconds=30):
    end = time.time() + seconds
    while not what() and time.time() < end:
        time.sleep(0.02)
    need(what(), 'what a test waits for did not come', '')


def clean(folder):
    for d in 'run', 'ckpt':
        shutil.rmtree(f'{folder}/{d}', ignore_errors=True)


def launcher_killed(folder, want, steps, every, results, in_time):
    """kill -9 of mpirun: it is named, nobody it started is left, and the run goes on from the last checkpoint. The folder is
    another one than the caller's: results lie in the build folder all the same."""
    clean(folder)
    p = subprocess.Popen([f'{folder}/bin/pdrun', '--max-restarts', '1', folder, '--', '--steps', str(steps), '--ckpt', f'{folder}/ckpt',
                          '--ckpt-every', str(every), '--ckpt-keep', '2', '--quiet', '--timeout', '60'], cwd='/', stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT, text=True, start_new_session=True,
                         env=dict(os.environ, PD_KILL_AT=f'1:{steps // 2}:2:stop', OMPI_ALLOW_RUN_AS_ROOT='1', OMPI_ALLOW_RUN_AS_ROOT_CONFIRM='1'))
    try:
        wait_for(lambda: glob.glob(f'{folder}/ckpt/step-*/part-*.json'))
        ranks = [c for n in range(4) for c in children(p.pid, f'd{n}')]
        launcher = children(p.pid, 'mpirun') or children(p.pid, 'mpirun.openmpi') or children(p.pid, 'orterun') or children(p.pid, 'prterun')
        need(len(launcher) == 1 and len(ranks) == 4, f'one launcher, four ranks: {launcher}, {ranks}', '')
        os.kill(launcher[0], signal.SIGKILL)
        begin = time.time()
        out = p.communicate(timeout=300)[0]
        in_time(time.time() - begin, 60, out)
    finally:
        p.kill()
    need(p.returncode == 0 and re.search(r'the launcher \(process \d+\) was killed by signal 9', out) and 'starting again, 1 of 1' in out,
         f'exit {p.returncode}', out)
    left = [r for r in ranks if command(r) in ('d0', 'd1', 'd2', 'd3')]     # the number may be another process by now
    need(not left, f'ranks {left} of the first start are left', out)
    got = results(folder)
    need(got[0] == want[0] and all(got[1][k].tobytes() == v.tobytes() for k, v in want[1].items()), 'other bits than uninterrupted', out)


def slurm(folder, tmp, want, steps, every, results, disturbed):
    """Under srun (a script that sets what Slurm sets), also for pdrun, and a task too few."""
    bin = f'{tmp}/slurm'
    os.makedirs(bin, exist_ok=True)
    with open(f'{bin}/srun', 'w') as f:
        f.write(SRUN)
    os.chmod(f'{bin}/srun', 0o755)
    env = {'PATH': f'{bin}:{os.environ["PATH"]}', 'PD_LAUNCH': 'srun'}
    clean(folder)
    rc, out = disturbed([f'{folder}/bin/pdrun', '--max-restarts', '1', '.', '--'],
                        ['--steps', str(steps), '--ckpt', 'ckpt', '--ckpt-every', str(every), '--ckpt-keep', '2', '--quiet', '--timeout', '60'],
                        folder, {**env, 'PD_KILL_AT': f'2:{steps - 2}:1'})
    need(rc == 0 and 'starting again, 1 of 1' in out, f'exit {rc}', out)
    got = results(folder)
    need(got[0] == want[0] and all(got[1][k].tobytes() == v.tobytes() for k, v in want[1].items()), 'other bits than uninterrupted', out)
    rc, out = T.run([f'{bin}/srun', '--ntasks=3', 'sh', 'run.sh', '--steps', '1'], cwd=folder, env=env)
    need(rc == 78 and 'started as 3 tasks; this plan has 4' in out, f'exit {rc} for 78', out)


def speakers(line):
    """The ranks of which this line is: the same of several is one, which names them; what comes late is `R115 rank 2: as rank 1`."""
    others = re.search(r' \(and (?:rank|\d other ranks:) ([\d, ]+)\)$', line)
    return [*re.match(r'R\d+ (?:\S+ \()?rank (\d)', line).groups(), *(others[1].split(', ') if others else ())]


class Cables:
    """A build folder for hosts behind cables; each run has one pulled once the first checkpoint is there."""
    def __init__(self, tmp, model, flags, hosts, timeout):
        self.net, self.folder, self.timeout = netns.Net(tmp, hosts), f'{tmp}/hosts', timeout
        self.net.open()
        with open(f'{tmp}/hosts.yaml', 'w') as f:
            f.write('nodes:\n' + ''.join(f'  - {{host: {h}, devices: 1}}\n' for h in self.net.hosts) +
                    f'network: {{bandwidth: 1 Gb/s, timeout: {timeout} s, interface: eth0}}\nplacement: {{tolerate: 1}}\n')
        T.emit(model, self.folder, ['--cluster', f'{tmp}/hosts.yaml', '--plan', '-'.join('1' * hosts), *flags])
        T.make(self.folder)

    def run(self, victim, restarts, steps):
        clean(self.folder)
        at = []

        def pull():
            wait_for(lambda: glob.glob(f'{self.folder}/ckpt/step-*/part-*.json'))
            self.net.cut(victim)
            at.append(time.time())
        t = threading.Thread(target=pull)
        t.start()
        try:
            mca = ' '.join(f'--mca {k} {v}' for k, v in self.net.mca().items())
            rc, out = T.run([self.net.agent, self.net.hosts[0], f'cd {self.folder} && exec bin/pdrun --max-restarts {restarts} . -- --steps '
                             f'{steps} --ckpt ckpt --ckpt-every 20 --ckpt-keep 2 --quiet'], env={'PD_MPIRUN_FLAGS': mca}, timeout=300)
        finally:
            t.join()
            self.net.cut(victim, joined=True)
        need(at, 'the cable was not pulled', out)
        return rc, out, at[0]

    def pulled(self, victim, world):
        """Everyone who is left names the rank behind the cable, and has ended two seconds after the timeout."""
        rc, out, at = self.run(victim, 0, 10**7)
        lines = re.findall(r'^R(?:102|115) .*', out, re.M)
        said = [l for l in lines if not re.match(rf'R\d+ \S+ \(rank {victim}\)|.*: as rank \d$', l)]
        who = {r for l in lines for r in speakers(l)} - {str(victim)}
        need(rc == 75 and len(who) == world - 1, f'exit {rc} for 75, verdicts of {sorted(who)}', out)
        need(all(re.search(rf'\(rank {victim}\) is on host \S+, which does not answer, its last action: step \d+: \w+', l) for l in said),
             f'all name rank {victim}, its host and action', out)
        need(any(re.search(r'R102 .*microbatch \d of step \d+ on channel \d \(\S+, node #\d+ .*did not come', l) for l in said), 'the ONNX node', out)
        for r in range(world):
            with open(f'{T.results(self.folder)}/fr/rank{r}.exit') as f:
                took = float(f.read().split()[2]) - at
            need(r == victim or took <= self.timeout + 2, f'rank {r} ended {took:.1f} s after the cable was pulled', out)

    def smaller(self, victim, steps):
        """The plan for the hosts that are left goes on from the last common checkpoint."""
        rc, out, _ = self.run(victim, 1, steps)
        need(rc == 0 and re.search(rf'{self.net.hosts[victim]} does not answer; the plan without it goes on', out), f'exit {rc}', out)
        with open(f'{T.results(self.folder)}/losses.txt') as f:
            seen = [int(l.split()[0]) for l in f]
        need(seen == list(range(steps)), 'every step has its loss once', out)
        world = len(self.net.hosts) - 1
        parts = sorted(os.listdir(f'{self.folder}/ckpt/step-{steps:010}'))
        need(parts == sorted(f'part-{r}-of-{world}.{e}' for r in range(world) for e in ('json', 'safetensors')),
             f'the last checkpoint has {parts}', out)
