"""Runs that the page's measured tables stand on: each done once, kept with its machine in measured/NAME.json, gone on with where it ended.

A room has EXPERIMENTS = [(name, timed, runs)]: runs(folder) gives (key, function) pairs, each function does one run and returns what
JSON holds. Of timed ones nothing is kept where other processes took more than BUSY of a core before, behind or during a run: a machine
that is not idle is waited for, for PATIENCE seconds in all, then the experiment is refused."""
import ctypes
import importlib
import json
import os
import platform
import resource
import shutil
import time

import pdcctest as T
from core import Missing

KEPT = os.path.join(os.path.dirname(os.path.realpath(__file__)), 'measured')
ROOMS = ('measure_pipedream', 'measure_pipesgd', 'measure_parallax')
BUSY, PATIENCE = 0.15, 300


class NotIdle(Exception):
    """Others use the machine."""


def adopt():
    """What runs leave behind (MPI's daemons of other hosts) becomes this process's, so that their time is its own."""
    ctypes.CDLL(None, use_errno=True).prctl(36, 1, 0, 0, 0)         # PR_SET_CHILD_SUBREAPER


def reap(seconds=2.0):
    """Waits for those, as long as that."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.02)
        except ChildProcessError:
            return


def ticks():
    """Seconds of all cores that programs took since the machine began; what packets of links cost the kernel is not theirs."""
    with open('/proc/stat') as f:
        user, nice, system, *_ = (int(x) for x in f.readline().split()[1:])
    return (user + nice + system) / os.sysconf('SC_CLK_TCK')


def own():
    """Seconds that this process and all that it waited for computed."""
    return sum(r.ru_utime + r.ru_stime for r in (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)))


class Others:
    """The share of a core that others take: `share()` since it was made."""

    def __init__(self):
        self.at, self.busy, self.mine = time.monotonic(), ticks(), own()

    def share(self):
        return max(0.0, (ticks() - self.busy - (own() - self.mine)) / max(1e-9, time.monotonic() - self.at))


def others(seconds=1.0):
    watch = Others()
    time.sleep(seconds)
    return watch.share()


def wait_idle(left):
    """Waits until others take at most BUSY of a core; gives what is left of the patience."""
    while (share := others()) > BUSY:
        left -= 3
        if left <= 0:
            raise NotIdle('other processes take %.2f of a core; %.2f are allowed' % (share, BUSY))
        time.sleep(2)
    return left


def machine():
    model = [line.split(':', 1)[1].strip() for line in open('/proc/cpuinfo') if line.startswith('model name')]
    return {'cpu': model[0] if model else platform.machine(), 'cores': T.cores(), 'kernel': platform.release(),
            'date': time.strftime('%Y-%m-%d')}


def load(kept=KEPT):
    """{experiment: {'machine', 'runs': {key: value}, 'others': {key: share}}} of all that is recorded."""
    found = {}
    for name in sorted(os.listdir(kept)) if os.path.isdir(kept) else ():
        if name.endswith('.json'):
            with open(os.path.join(kept, name), encoding='utf-8') as f:
                found[name[:-5]] = json.load(f)
    return found


def told(name, record):
    """What a page says of a record's machine."""
    m = record['machine']
    return '%s: %d runs on %s, %d cores, Linux %s, %s; other processes took at most %.2f of a core meanwhile' % (
        name, len(record['runs']), m['cpu'], m['cores'], m['kernel'], m['date'], max(record['others'].values()))


def save(kept, name, record):
    """Whole or not at all: what was measured before is not lost with a run that is ended."""
    os.makedirs(kept, exist_ok=True)
    path = os.path.join(kept, name + '.json')
    with open(path + '.new', 'w', encoding='utf-8') as f:
        json.dump(record, f, indent=1, sort_keys=True)
        f.write('\n')
    os.replace(path + '.new', path)


def once(function, timed, left):
    """(value, the others' share, patience left) of one run."""
    if timed:
        left = wait_idle(left)
    watch = Others()
    value = function()
    reap()
    share = watch.share()
    if timed and share > BUSY:
        raise NotIdle('other processes took %.2f of a core meanwhile; %.2f are allowed' % (share, BUSY))
    return value, share, left


def experiment(name, timed, runs, folder, kept, again):
    """How many runs are recorded now, and why no more; the machine must be the one that the others ran on."""
    here, record = machine(), {} if again else load(kept).get(name, {})
    if record and {k: v for k, v in record['machine'].items() if k != 'date'} != {k: v for k, v in here.items() if k != 'date'}:
        return len(record['runs']), 'recorded on another machine (%s); --again measures all of it here' % record['machine']['cpu']
    record = record or {'machine': here, 'runs': {}, 'others': {}}
    record['machine'], left = here, PATIENCE
    for key, function in runs(folder):
        if key in record['runs']:
            continue
        began = time.monotonic()
        try:
            value, share, left = once(function, timed, left)
        except (NotIdle, Missing, T.Failed, OSError) as x:
            return len(record['runs']), '%s: %s' % (key, x)
        record['runs'][key], record['others'][key] = value, round(share, 3)
        save(kept, name, record)
        print('%s  %s: %.0f s, others %.2f of a core' % (name, key, time.monotonic() - began, share), flush=True)
    return len(record['runs']), None


def main(only, kept=KEPT, again=False):
    """Measures what is not recorded; the exit status."""
    failed = 0
    adopt()
    for room in ROOMS:
        for name, timed, runs in importlib.import_module(room).EXPERIMENTS:
            if only and not any(w in name or name in w for w in only.split(',')):
                continue
            folder = T.temp(name)
            try:
                done, why = experiment(name, timed, runs, folder, kept, again)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
            failed += why is not None
            print('%s: %d runs recorded%s' % (name, done, '' if why is None else '; refused: ' + why), flush=True)
    return 1 if failed else 0
