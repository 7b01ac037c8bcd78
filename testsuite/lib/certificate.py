"""Proves a build folder's certificate.json from the facts that it lists (docs/certificate.md), knowing nothing else of the
compiler: prove(certificate) raises Refused with what does not hold.

Facts: the order of each device's actions, nodes with the values that they read and make, where values lie. Claims, each
computed again: every microbatch is done once and in order; each send has its receive; nobody waits for ever; slots and entries
are never used twice at once; intervals of values; no two values that are needed at one time share a byte; nothing lies outside
its region or regions over one another; the peak; which versions of weights are met, and how many are alive."""
import math, re

ACTION = re.compile(r'(\d+)(RECV_F|SEND_F|RECV_B|SEND_B|SYNC|UPDATE|F|B|I|W)(\d*)/(\d+)/(\d+)/(\d+)$')
TYPE = re.compile(r'[a-z]+(\d*)\[([\d,]*)\](?:nhwc)?$')
MOMENT = re.compile(r'([FBWU])(\d+)$')
EVER, NEVER = (9, 0), (-1, 0)
class Refused(Exception):
    """What does not hold."""
def need(holds, what):
    if not holds:
        raise Refused(what)
class Action:
    def __init__(self, text, rank, place):
        m = ACTION.match(text)
        need(m, f'{text!r} is no action')
        self.stage, self.kind, self.mb = int(m[1]), 'B' if m[2] == 'I' else m[2], int(m[3]) if m[3] else -1
        self.slot, self.entry, self.version = int(m[4]), int(m[5]), int(m[6])
        self.rank, self.place, self.text = rank, place, f'{text} of device {rank}'
class Proof:
    def __init__(self, c):
        self.c, self.n = c, c['microbatches']
        self.stages = {s['stage']: s for s in c['stages']}
        self.order = [[Action(t, r, i) for i, t in enumerate(line.split())] for r, line in enumerate(c['order'])]
        self.at, self.step = {}, {}
        for x in (x for line in self.order for x in line):
            need(x.stage in self.stages and x.rank in self.ranks(x.stage), f'{x.text}: its stage is none of this device')
            need(x.mb < self.n, f'{x.text}: there are {self.n} microbatches')
            if x.kind not in ('SYNC', 'UPDATE'):
                need((x.kind, x.stage, x.mb) not in self.at, f'{x.text}: done twice')
                self.at[x.kind, x.stage, x.mb] = x
        self.trained = [t for t, s in self.stages.items() if not s['server']]
        need(c['flushed'] == (c['rule'] == 'flush'), f'flushed, and weights as of {c["rule"]}')
        counts = [self.stages[t]['replicas'] for t in self.trained]
        need([int(n.split('x')[0]) for n in c['plan'].split('-')] == counts, f'the plan is {c["plan"]}, replicas are {counts}')
    def ranks(self, stage):
        return range(self.stages[stage]['first_rank'], self.stages[stage]['first_rank'] + self.stages[stage]['replicas'])
    def microbatches(self):
        split = any(k[0] == 'W' for k in self.at)
        for t in self.trained:
            for mb in range(self.n):
                chain = [self.at.get((k, t, mb)) for k in ('F', 'B', 'W')[:3 if split else 2]]
                names = [f'{t}{k}{mb}' for k in 'FBW']
                for x, name in zip(chain, names):
                    need(x, f'{name} is done nowhere')
                need(len({x.rank for x in chain}) == 1, f'{names[0]} and {names[1]} are done by two devices')
                need([x.place for x in chain] == sorted(x.place for x in chain), f'{names[0]} stands behind {names[1]}')
                for k, of, sign in (('RECV_F', chain[0], -1), ('SEND_F', chain[0], 1), ('RECV_B', chain[1], -1), ('SEND_B', chain[1], 1)):
                    x = self.at.get((k, t, mb))
                    need(not x or (x.rank == of.rank and (x.place - of.place) * sign > 0), f'{t}{k}{mb} stands on the wrong side of {of.text}')
    def steps(self):
        """What a device adds up and updates, stage by stage."""
        for line, t in ((line, t) for line in self.order for t in {x.stage for x in line}):
            own = [x for x in line if x.stage == t]
            sums, updates = ([x for x in own if x.kind == k] for k in ('SYNC', 'UPDATE'))
            work, name = [x for x in own if x.kind in ('F', 'B', 'W')], f'stage {t} on device {own[0].rank}'
            if self.c['flushed']:
                ends = [x.kind for x in own if x in sums or x in updates]
                need(ends == (['SYNC'] if self.stages[t]['server'] and self.c['each'] else ['SYNC', 'UPDATE']), f'{name}: {ends} in a step')
                need(all(x.place < sums[0].place for x in work), f'stage {t}: work behind SYNC')
                continue
            need(sums and updates and work, f'{name} adds or updates nothing')
            size = sums[1].mb - sums[0].mb if len(sums) > 1 else self.n
            need(size > 0 and [x.mb for x in sums] == [x.mb for x in updates] == list(range(sums[0].mb % size, self.n, size)),
                 f'{name}: sums of {[x.mb for x in sums]}, updates of {[x.mb for x in updates]}')
            for x, y in zip(sums, updates):
                need(all(w.place < x.place < y.place for w in work if w.mb // size == x.mb // size), f'{y.text} stands before what it is made of')
            waits = max(sum(x.place < w.place for x in sums) - sum(x.place < w.place for x in updates) for w in work)
            need(waits == self.c['late'], f'{name}: updates wait for {waits} steps, not {self.c["late"]}')
            self.step[t] = size
    def messages(self):
        channel, seen, used = {}, set(), set()
        for number, way, a, b, size, name in self.c['channels']:
            need(number not in channel, f'channel {number} is listed twice')
            need(a < b if way == 'F' else a > b, f'channel {number} leads from stage {a} to {b}')
            own = [v for v in self.stages[a]['values'] if v[0] == name]
            need(own and size - own[0][3] in (0, 24), f'channel {number}: {size} bytes of %{name}, which has {own and own[0][3]}')
            channel[number] = way, a, b
        for number, mb, r, i, q, k in self.c['matched']:
            need(number in channel and (number, mb) not in seen, f'message {mb} of channel {number} is matched twice or unknown')
            seen.add((number, mb))
            way, a, b = channel[number]
            x, y = self.at.get(('SEND_' + way, a, mb)), self.at.get(('RECV_' + way, b, mb))
            need(x and (x.rank, x.place) == (r, i), f'message {mb} of channel {number}: its send is not action {i} of device {r}')
            need(y and (y.rank, y.place) == (q, k), f'message {mb} of channel {number}: its receive is not action {k} of device {q}')
            used |= {x, y}
        for t, s in self.stages.items():
            for op, end, way in (('Send', 1, 'F'), ('Send', 1, 'B'), ('Recv', 2, 'F'), ('Recv', 2, 'B')):
                n = [sum(re.match(op, x) is not None for x in s['nodes'].get(way, ())), sum(c[0] == way and c[end] == t for c in channel.values())]
                need(s['server'] or n[0] == n[1], f'stage {t}: {n[0]} times {op} in {way}, {n[1]} channels')
        need(len(seen) == len(channel) * self.n, f'{len(seen)} messages are matched, {len(channel) * self.n} are sent')
        for x in self.at.values():
            need('_' not in x.kind or x in used, f'{x.text} has no other end')
        self.channel = channel
    def ends(self):
        """Every device comes to the end of its list: F and B wait for what they read, SYNC for the other replicas, and whoever
        writes a buffer again for the receive of what was sent from it."""
        done, place, met, sent = set(), [0] * len(self.order), {}, {}
        gathers = {(g, t) for t, s in self.stages.items() for g in 'FBW' for x in s['nodes'].get(g, ()) if x.startswith('GatherWeight ')}
        turn = {x: sum((y.kind, y.stage) in gathers and y.stage == x.stage for y in line[:x.place]) for line in self.order for x in line}
        into = {(way, b): [x[1] for x in self.channel.values() if (x[0], x[2]) == (way, b)] for way, a, b in self.channel.values()}
        def ready(x):
            if x.kind in ('F', 'B'):
                if any(('SEND_' + x.kind, a, x.mb) not in done or ('RECV_' + x.kind, x.stage, x.mb) not in done for a in into.get((x.kind, x.stage), ())):
                    return False
                before = sent.get((x.rank, x.stage, x.kind, x.slot if x.kind == 'F' else x.entry))
                if before is not None and not all(('RECV_' + x.kind, b, before) in done for w, a, b in self.channel.values() if (w, a) == (x.kind, x.stage)):
                    return False
            if (x.kind, x.stage) in gathers:        # replicas gather weights in their n-th action of one kind together
                met.setdefault(('gather', x.stage, turn[x], x.kind), set()).add(x.rank)
                return len(met['gather', x.stage, turn[x], x.kind]) == self.stages[x.stage]['replicas']
            if x.kind == 'SYNC' and not self.stages[x.stage]['server'] and self.c['flushed']:
                met.setdefault((x.stage, x.mb), set()).add(x.rank)
                return len(met[x.stage, x.mb]) == self.stages[x.stage]['replicas']
            return True
        moved = True
        while moved:
            moved = False
            for r, line in enumerate(self.order):
                while place[r] < len(line) and ready(line[place[r]]):
                    x = line[place[r]]
                    done.add((x.kind, x.stage, x.mb))
                    if x.kind.startswith('SEND'):
                        sent[r, x.stage, x.kind[-1], x.slot if x.kind == 'SEND_F' else x.entry] = x.mb
                    place[r] += 1
                    moved = True
        for r, line in enumerate(self.order):
            need(place[r] == len(line), f'device {r} waits for ever: {line[min(place[r], len(line) - 1)].text}')
    def copies(self):
        split = any(k[0] == 'W' for k in self.at)
        for line in self.order:
            slot, entry = {}, {}
            for x in line:
                s, f = self.stages[x.stage], self.at.get(('F', x.stage, x.mb))
                need(x.kind in ('SYNC', 'UPDATE', 'RECV_F') or (x.slot, x.entry) == (f.slot, f.entry), f'{x.text}: its forward has slot {f and f.slot}, entry {f and f.entry}')
                if x.kind == 'F':
                    need(x.slot < s['slots'] and slot.get((x.stage, x.slot)) is None, f'{x.text}: its slot is taken or none')
                    slot[x.stage, x.slot] = x.mb
                elif x.kind in ('B', 'W'):
                    need(slot.get((x.stage, x.slot)) == x.mb, f'{x.text}: slot {x.slot} has another microbatch')
                    if x.kind == 'W' or not split:
                        slot[x.stage, x.slot] = None
                if x.kind == 'RECV_F':
                    was = entry.get((x.stage, x.entry))
                    need(x.entry < s['entries'], f'{x.text}: there are {s["entries"]} entries')
                    need(was is None or self.at['W' if split else 'B', x.stage, was].place < x.place, f'{x.text}: its entry is taken')
                    entry[x.stage, x.entry] = x.mb
                elif x.kind == 'F' and ('RECV_F', x.stage, x.mb) in self.at:
                    need(entry.get((x.stage, x.entry)) == x.mb, f'{x.text}: entry {x.entry} has another microbatch')
    def versions(self):
        rule = self.c['rule']
        for t in self.trained:
            most, s = 1, self.stages[t]
            for r in self.ranks(t):
                own, newest = [x for x in self.order[r] if x.stage == t], 0
                last = {x.version: i for i, x in enumerate(own) if x.kind in ('F', 'B', 'W')}
                for i, x in enumerate(own):
                    if x.kind == 'UPDATE':
                        need(x.version == (0 if rule == 'flush' else newest + 1), f'{x.text} makes version {x.version} behind {newest}')
                        newest = x.version
                    elif x.kind in ('F', 'B', 'W'):
                        need(x.version <= newest, f'{x.text} meets version {x.version}, the newest is {newest}')
                        if x.kind != 'F' and rule != 'newest':
                            need(x.version == self.at['F', t, x.mb].version, f'{x.text} meets another version than its forward')
                        due = {'previous': max(0, x.mb // self.step.get(t, 1) - 1), 'vertical': self.at['F', self.trained[0], x.mb].version}
                        need(x.version == due.get(rule, x.version), f'{x.text} meets version {x.version}, not {due.get(rule)}')
                        if rule == 'newest' or (x.kind == 'F' and (rule == 'stash' or (rule == 'vertical' and t == self.trained[0]))):
                            need(x.version == newest, f'{x.text} meets version {x.version}, not the newest, {newest}')
                    most = max(most, 1 + sum(1 for v, at in last.items() if v < newest and at > i))
            need(s['versions_alive'] == most, f'stage {t}: {most} versions are alive, not {s["versions_alive"]}')
            read = {int(i) for g in 'BW' for x in s['nodes'].get(g, ()) for i in re.split(r'[ >]', x)[1].split(',') if i}
            need(s['versions_kept'] >= most or not s['versions_kept'] and (most == 1 or all(s['values'][i][1] != 'params' for i in read)), f'stage {t} keeps {s["versions_kept"]} versions, {most} are alive')
    def stage_memory(self, s):
        place = {g: i for i, g in enumerate('FBWU')}
        values, first, last, group, maker, sent, got, shown = s['values'], {}, {}, {}, {}, set(), set(), set()
        def root(i):
            return i if group.get(i, i) == i else root(group[i])
        for g in sorted(s['nodes'], key=place.get):
            for k, text in enumerate(s['nodes'][g], 1):
                m = re.match(r'(\w+)([=!]?) ([\d,]*)>([\d,]*)(?: (\d+))?$', text)
                need(m, f'{text!r} is no node')
                need(int(m[5] or 0) <= s['regions']['scratch'][1], f'{g}{k} {m[1]} needs {m[5]} bytes of scratch memory')
                reads, makes = ([int(i) for i in m[n].split(',') if i] for n in (3, 4))
                for i in reads:
                    first.setdefault(i, (place[g], 0) if values[i][1] not in ('params', 'state') else NEVER)
                    if m[1] == 'Accumulate':
                        group[root(makes[0])] = root(i)
                    elif m[1] == 'Stack':
                        last[i] = (0, len(s['nodes']['F']) + 1) if first[i][0] == 0 else last[i]
                    else:
                        last[i] = max(last.get(i, NEVER), (place[g], k))
                sent, got, shown = (a | set(b if on else ()) for a, b, on in ((sent, reads, m[1] == 'Send'), (got, makes, m[1] == 'Recv'), (shown, makes, m[2] == '=')))
                need(m[1] != 'GatherWeight' or values[reads[0]][3] * s['replicas'] >= values[makes[0]][3], f'{g}{k}: the parts of %{values[(reads or [0])[0]][0]} are not the whole')
                for i in makes:
                    need(m[2] != '=' or not reads or values[i][3] == values[reads[0]][3], f'{g}{k} {m[1]}: %{values[i][0]} is not as large as what it shows')
                    first[i] = (place[g], k)
                    last[i] = max(last.get(i, NEVER), first[i])
                    maker[place[g], k] = (m[2], reads)
                    if m[2] == '=' and reads:
                        group[root(i)] = root(reads[0])
        self.buckets(s, last, place, root)
        self.intervals(s, values, first, last, place)
        for i, v in enumerate(values):
            need(v[1] != 'none' or i in shown, f'stage {s["stage"]}: %{v[0]} lies nowhere')
        for i in sent:      # until the message is gone; what was posted may come any time before
            last.update({j: EVER for j in range(len(values)) if root(j) == root(i) and j in first})
        first.update({i: NEVER for i in got})
        self.apart(s, self.spans(s, values, first, last), root, maker)
        self.sizes(s)
    def sizes(self, s):
        """Bytes by types; of gradients and of what the optimizer keeps by their parameters; of all versions of weights."""
        by_name, end = {v[0]: v for v in s['values']}, 0
        for name, region, at, n, *_, text in s['values']:
            m = TYPE.match(text)
            need(m, f'{text!r} is no type')
            dims, width = [int(d) for d in m[2].split(',') if d], int(m[1] or 8) // 8
            due = math.prod(dims) * width
            need(n == due, f'stage {s["stage"]}: %{name} is {text}, {due} bytes, not {n}')
            of = by_name.get(name.split(':')[0] if region == 'state' else name[2:] if region == 'grads' else '')
            parts = s['replicas'] if region == 'state' or any(each for *_, each in s['buckets']) else 1
            need(not of or n * parts >= of[3], f'stage {s["stage"]}: %{name} has {n} bytes, its parameter {of and of[3]}')
            end = max(end, at + n) if region == 'params' else end
        more = s['regions']['params'][1] - (end + 63) // 64 * 64
        need(more == max(0, s['versions_kept'] - 1) * s['version_bytes'], f'stage {s["stage"]}: {more} bytes for further versions')
    def buckets(self, s, last, place, root):
        """Behind its begin nothing touches what a bucket sums; where that is in every backward its gradients are needed until the next begins.
        Each gradient is in one bucket."""
        said = [((place[m[1]], int(m[2])), of, each) for m, of, each in ((MOMENT.match(at), of, each) for at, of, each in s['buckets'])]
        summed = [i for _, of, _ in said for i in of]
        need(len(set(summed)) == len(summed), f'stage {s["stage"]}: a gradient is summed twice')
        for at, i in ((at, i) for at, of, _ in said for i in of):
            touched = max(last[j] for j in last if root(j) == root(i) and last[j][0] == at[0])
            need(touched <= at, f'stage {s["stage"]}: %{s["values"][i][0]} is touched at {touched}, its bucket begins at {at}')
        said = [(at, of) for at, of, each in said if each]
        for n, (at, of) in enumerate(said):
            last.update({i: said[n + 1][0] if n + 1 < len(said) else (at[0], len(s['nodes']['FBWU'[at[0]]]) + 1) for i in of})
    def intervals(self, s, values, first, last, place):
        for i, (name, region, _, _, a, b, _) in enumerate(values):
            if a == 'always':
                need(region in ('params', 'state'), f'%{name} is no parameter')
                continue
            said = tuple((place[m[1]], int(m[2])) for m in (MOMENT.match(a), MOMENT.match(b)) if m)
            is_input = said and said[0][1] == 0 and first.get(i, said[0])[1] == 0
            need(len(said) == 2 and (is_input or said[0] == first.get(i)) and said[1] == last.get(i, said[0]), f'stage {s["stage"]}: %{name} is needed from {first.get(i)} to {last.get(i)}, not {a} to {b}')
            first.setdefault(i, said[0])
            last.setdefault(i, said[1])
    def spans(self, s, values, first, last):
        """(begin, end, value, from when, to when) of each value, in the device's memory."""
        at, size = ({k: v[i] for k, v in s['regions'].items()} for i in (0, 1))
        need(size['slots'] == s['slots'] * s['slot_bytes'] and size['entries'] == s['entries'] * s['entry_bytes'], f'stage {s["stage"]}: {s["slots"]} slots or {s["entries"]} entries are not as large as their regions')
        over = at['tmp'] == at['slots'] and s['slots'] == 1
        room = dict(size, slots=s['slot_bytes'], entries=s['entry_bytes'], tmp=size['tmp'] + (s['slot_bytes'] if over else 0), leaf=size['leaf'] or size['grads'], grads=size['grads'] or size['leaf'])
        found = []
        for i, (name, region, offset, n, *_) in enumerate(values):
            if region == 'none' or i not in first and region not in ('params', 'state'):
                continue
            need(0 <= offset and offset + n <= room[region], f'stage {s["stage"]}: %{name} lies outside of {region}')
            ever = region in ('params', 'state', 'grads', 'stack') or (region == 'leaf' and self.c['reproducible'])
            found.append((at[region] + offset, at[region] + offset + n, i, NEVER if ever else first[i], EVER if ever else last[i]))
            need(region != 'tmp' or first[i][0] == last[i][0], f'stage {s["stage"]}: %{name} is temporary and outlives its function')
        return found
    def apart(self, s, spans, root, maker):
        open_ = []
        for x in sorted(spans):
            open_ = [y for y in open_ if y[1] > x[0]]
            for y in open_:
                if root(x[2]) == root(y[2]) or x[3] > y[4] or y[3] > x[4]:
                    continue
                a, b = (x, y) if x[3] < y[3] else (y, x)        # b may be written over a, by the node that reads a last
                how, reads = maker.get(b[3], ('', []))
                if a[4] == b[3] and how == '!' and reads and root(reads[0]) == root(a[2]) and a[0] == b[0]:
                    continue
                raise Refused(f'stage {s["stage"]}: %{s["values"][a[2]][0]} and %{s["values"][b[2]][0]} share bytes {b[0]}.. while both are needed')
            open_.append(x)
    def devices(self):
        for r in {s['first_rank'] for s in self.stages.values()}:
            stages, held, end = [s for s in self.stages.values() if s['first_rank'] == r], [], 0
            for s in stages:
                over = s['regions']['tmp'][0] == s['regions']['slots'][0] and s['slots'] == 1
                for name, (at, n) in s['regions'].items():
                    n += s['slot_bytes'] if name == 'tmp' and over else 0
                    end = max(end, at + n)
                    shared = name == 'scratch' or (name == 'tmp' and not over)
                    if n and not (name == 'slots' and over):
                        held.append((at, at + n, f'{name} of stage {s["stage"]}', name if shared else ''))
            for x, y in ((x, y) for x in held for y in held):
                need(x is y or x[1] <= y[0] or y[1] <= x[0] or (x[3] and x[3] == y[3]), f'{x[2]} lies over {y[2]}')
            for s in stages:
                need(s['peak_bytes'] == end, f'stage {s["stage"]}: its device needs {end} bytes, not {s["peak_bytes"]}')
def prove(c):
    p = Proof(c)
    for claim in (p.microbatches, p.steps, p.messages, p.ends, p.copies, p.versions, *(lambda s=s: p.stage_memory(s) for s in p.stages.values()), p.devices):
        claim()
