"""Small changes of C sources, and programs that hold many of them: which one is done, the environment says (PDCC_MUTANT).

sites(path, text): the changes of a file. grown(text, mutants): the file with all of them; a statement that has some asks before each
run of it which mutant is wanted, and notes in the file $PDCC_MET that it was met. So everything is compiled once."""
import re

NEIGHBOUR = {' < ': ' <= ', ' <= ': ' < ', ' > ': ' >= ', ' >= ': ' > ', ' == ': ' != ', ' != ': ' == ', ' + ': ' - ', ' - ': ' + ',
             ' && ': ' || ', ' || ': ' && ', ' * ': ' + ', ' / ': ' * ', '++': '--', ' += ': ' -= ', ' |= ': ' = '}
QUIET = ('unused-value', 'unused-variable', 'unused-but-set-variable', 'unused-parameter', 'parentheses', 'type-limits', 'int-conversion',
         'misleading-indentation', 'dangling-else', 'sign-compare', 'sign-conversion', 'conversion', 'pedantic', 'redundant-decls',
         'incompatible-pointer-types', 'discarded-qualifiers', 'maybe-uninitialized', 'uninitialized', 'return-type', 'bool-compare',
         'logical-op', 'float-equal', 'bool-operation', 'stringop-overflow', 'stringop-overread', 'array-bounds', 'nonnull', 'shadow',
         'tautological-compare', 'div-by-zero', 'implicit-fallthrough', 'strict-prototypes', 'int-in-bool-context', 'unused-result',
         'aggressive-loop-optimizations', 'restrict', 'format-overflow', 'format-truncation', 'free-nonheap-object', 'use-after-free')
BEGIN = '#pragma GCC diagnostic ignored "-Wpragmas"\n' + ''.join(f'#pragma GCC diagnostic ignored "-W{q}"\n' for q in QUIET) + """
extern char *getenv(const char *);
extern int atoi(const char *);
extern int open(const char *, int, ...);
extern void *mmap(void *, unsigned long, int, int, int, long);
__attribute__((weak)) int pd_mutant;
__attribute__((weak)) unsigned char pd_unmet[COUNT];
__attribute__((weak)) unsigned char *pd_met;
static void __attribute__((constructor)) pd_which(void)
{
	if (pd_met)
		return;
	const char *met = getenv("PDCC_MET"), *which = getenv("PDCC_MUTANT");
	const int f = met && *met ? open(met, 2) : -1;
	pd_mutant = which ? atoi(which) : 0;
	pd_met = f < 0 ? pd_unmet : mmap(0, COUNT, 3, 1, f, 0);
}
"""
TYPE = r'(?:(?:static|const|unsigned|signed|long|volatile|struct|enum|union)\s+)*[A-Za-z_]\w*(?:\s+const)?(?:\s+|\s*\*+\s*(?:const\s+)?)'
DECLARED = re.compile(r'(?!return\b|goto\b|else\b|case\b)' + TYPE + r'[A-Za-z_]\w*(?:\[[^\]]*\])*\s*(?:=|;|,)')
ROOM = re.compile(r'\b(arena_\w+|calloc|malloc|realloc|buf_reserve|GROW\w*|snprintf|_Static_assert)\b')


def blanked(text):
    """The text without comments and what strings hold, of the same length."""
    def blank(m):
        return re.sub(r'[^\n]', '#' if m[0][0] == '/' else '"', m[0])
    return re.sub(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|/\*.*?\*/|//[^\n]*', blank, text, flags=re.S)


def same(line, m, old):
    """Changes that cannot be seen: >= where the larger of two is taken, and the like."""
    if old.strip() in ('<', '>', '<=', '>='):
        a, b = re.search(r'([\w.\->\[\]]+)$', line[:m.start()]), re.match(r'([\w.\->\[\]]+)', line[m.end():])
        rest = line[m.end():]
        if a and b:
            a, b = re.escape(a[1]), re.escape(b[1])
            return re.match(rf'{b}\)? \? ({a} : {b}|{b} : {a})(?![\w.\[(])', rest) is not None
    return False


def sites(path, text):
    """(path, line, from, to, new text, what) of all changes."""
    plain = blanked(text).split('\n')
    for n, line in enumerate(plain):
        if not line.startswith('\t') or line.lstrip().startswith(('#', 'case ')):
            continue
        for old, new in NEIGHBOUR.items():
            for m in re.finditer(re.escape(old), line):
                if not same(line, m, old):
                    yield path, n, m.start(), m.end(), new, f'operator {old.strip()} to {new.strip()}'
        for m in () if ROOM.search(line) else re.finditer(r'(?<![\w.])\d{1,4}(?![\w.])', line):
            yield path, n, m.start(), m.end(), str(int(m[0]) + 1), f'constant {m[0]} to {int(m[0]) + 1}'
        m = re.match(r'\t+([a-z]\w*\(.*\);)$', line)
        if m and not m[1].startswith(('return', 'if', 'for', 'while', 'sizeof', 'free', 'fclose')):
            yield path, n, m.start(1), m.end(1), ';', f'call of {m[1].split("(")[0]} dropped'
        declared = DECLARED.match(line.strip())      # the order of names says nothing there
        for m in () if declared else re.finditer(r'(?<=[(,])( ?)(\w+), (\w+)(?=[,)])', line):
            if m[2] != m[3] and not (m[2] + m[3]).isdigit():
                yield path, n, m.start(), m.end(), f'{m[1]}{m[3]}, {m[2]}', f'arguments {m[2]}, {m[3]} swapped'


# ---- statements ----

def level(text, signs='()[]{}'):
    """How deep each character lies."""
    depth, out = 0, []
    for c in text:
        depth -= c in signs[1::2]
        out.append(depth)
        depth += c in signs[0::2]
    return out, depth


def ends(plain):
    """Whether a statement, or the head of one, is whole."""
    if level(plain, '()[]')[1]:
        return False
    plain = plain.strip(' #\n\t')
    return plain.endswith((';', '{', '}', ':')) or re.match(r'(\} )?(else )?(if|for|while|switch) \(.*\)$|(\} )?else$', plain, re.S)


def statements(plain):
    """(from, to) of lines of statements in functions, their heads each for itself."""
    lines, n = plain.split('\n'), 0
    while n < len(lines):
        start = n
        if lines[n].startswith('\t') and not lines[n].lstrip().startswith('#') and lines[n].strip():
            while n + 1 < len(lines) and lines[n + 1].startswith('\t') and not ends('\n'.join(lines[start:n + 1])):
                n += 1
            yield start, n
        n += 1


def pieces(plain, a, b, sign):
    """(from, to) of what stands between signs at the outermost level of plain[a:b]."""
    depth, _ = level(plain[a:b])
    cuts = [a - 1] + [a + i for i, c in enumerate(plain[a:b]) if c == sign and depth[i] == 0] + [b]
    return [(x + 1, y) for x, y in zip(cuts, cuts[1:])]


def declared(plain, a, b):
    """Expressions that a declaration begins with."""
    found = []
    for x, y in pieces(plain, a, b, ','):
        m = re.match(r'[^=]*[\w\]] = ', plain[x:y])
        if m and '[' not in m[0] and plain[x + m.end()] != '{':
            found.append((x + m.end(), y))
    return found


def slots(plain):
    """Where expressions stand in a statement that may be chosen between; None where it is to be chosen as a whole; () where neither."""
    a = len(plain) - len(plain.lstrip())
    body = plain[a:].rstrip(' #\n')
    m = re.match(r'(\} )?(else )?(if|while) \(', body)
    if m:
        depth, _ = level(body, '()')
        end = next((i for i in range(m.end(), len(body)) if body[i] == ')' and depth[i] == 0), 0)
        return [(a + m.end(), a + end)] if body[end + 1:].strip() in ('', '{', ';') else ()
    m = re.match(r'for \(', body)
    if m:
        depth, _ = level(body, '()')
        end = next((i for i in range(m.end(), len(body)) if body[i] == ')' and depth[i] == 0), 0)
        parts = pieces(plain, a + m.end(), a + end, ';') if body[end + 1:].strip() in ('', '{', ';') else []
        if len(parts) != 3:
            return ()
        first = plain[slice(*parts[0])]
        return (declared(plain, *parts[0]) if DECLARED.match(first) else [parts[0]]) + parts[1:]
    if not body.endswith(';') or level(plain)[1] or body[0] in '.}{"' or re.match(r'(case|default|goto|switch|do|else|_Static_assert)\b', body):
        return ()
    if DECLARED.match(body):
        return () if body.startswith('static') else declared(plain, a, a + len(body) - 1)
    return None


def grown_statement(text, plain, at, mutants, number):
    """The statement with its mutants [(id, from, to, new)], and which ids that are."""
    where, mark, back = slots(plain), '\n#line 1 "MUTANT{}"\n', f'\n#line {at + 1} "REST"\n'
    changed = {i: text[:a] + new + text[b:] for i, a, b, new in mutants}
    if where is None:
        out = f'if (pd_met[{number}] = 1, 0) {{}}'
        for i in changed:
            out += mark.format(i) + f'else if (pd_mutant == {i}) {{ {changed[i].strip()} }}'
        return f'{{ {out}{back}else {{ {text.strip()} }} }}', list(changed)
    done, out = [], text
    for x, y in sorted(where, reverse=True):
        inside = [m for m in mutants if x <= m[1] and m[2] <= y and text[x:y].strip()]
        if inside:
            grown = f'{back}({text[x:y]})'
            for i, a, b, new in inside:
                grown = mark.format(i) + f'(pd_mutant == {i} ? ({text[x:a]}{new}{text[b:y]}) : {grown})'
            out = out[:x] + f'(pd_met[{number}] = 1, {grown}{back})' + out[y:]
            done += [m[0] for m in inside]
    return out, done


def grown(text, mutants, first, count):
    """The file with all mutants [(id, line, from, to, new)]: its text, {id: the number of its statement}; numbers from `first`."""
    lines, plain, of = text.split('\n'), blanked(text), {}
    rows, changed = plain.split('\n'), {}
    for a, b in statements(plain):
        own = [m for m in mutants if a <= m[1] <= b]
        if not own:
            continue
        offset = [sum(len(r) + 1 for r in rows[a:n]) for n in range(a, b + 1)]
        body = '\n'.join(lines[a:b + 1])
        new, done = grown_statement(body, '\n'.join(rows[a:b + 1]), a, [(i, offset[n - a] + x, offset[n - a] + y, t) for i, n, x, y, t in own],
                                    first + len(set(of.values())))
        if done:
            number = first + len(set(of.values()))
            of.update(dict.fromkeys(done, number))
            changed[a] = b, new
    out, n = [], 0
    while n < len(lines):
        out.append(changed[n][1] + f'\n#line {changed[n][0] + 2} "REST"' if n in changed else lines[n])
        n = changed[n][0] + 1 if n in changed else n + 1
    return BEGIN.replace('COUNT', str(count)) + '#line 1 "REST"\n' + '\n'.join(out), of
