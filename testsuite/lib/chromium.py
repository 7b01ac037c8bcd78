"""Chromium without a window, driven through its DevTools protocol over a pipe: nothing but Python's standard library."""
import base64, json, os, select, shutil, subprocess, tempfile, time

NAMES = 'chromium', 'chromium-browser', 'google-chrome'


def found():
    return next((p for p in map(shutil.which, NAMES) if p), None)


class Wrong(Exception):
    pass


class Browser:
    """One page of one browser. Exceptions of its scripts are kept in `thrown`."""

    def __init__(self, timeout=60):
        self.folder, self.timeout, self.last, self.rest, self.thrown, self.loaded = tempfile.mkdtemp(prefix='chromium-'), timeout, 0, b'', [], 0
        ours, theirs = os.pipe(), os.pipe()         # what it reads, what it writes
        moved = [os.dup(fd) for fd in (ours[0], theirs[1])]

        def at_three_and_four():
            high = [os.dup2(fd, 100 + i, False) for i, fd in enumerate(moved)]
            for i, fd in enumerate(high):
                os.dup2(fd, 3 + i)

        self.process = subprocess.Popen(
            [found(), '--headless=new', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--hide-scrollbars', '--no-first-run',
             '--remote-debugging-pipe', f'--user-data-dir={self.folder}', 'about:blank'],
            preexec_fn=at_three_and_four, close_fds=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for fd in (ours[0], theirs[1], *moved):
            os.close(fd)
        self.to, self.from_ = ours[1], theirs[0]
        self.session = None
        try:
            self.attach()
        except (Wrong, OSError, StopIteration):
            self.process.kill()
            self.close()
            raise Wrong('Chromium does not start')

    def attach(self):
        page = next(t for t in self.ask('Target.getTargets')['targetInfos'] if t['type'] == 'page')
        self.session = self.ask('Target.attachToTarget', targetId=page['targetId'], flatten=True)['sessionId']
        for domain in 'Page', 'Runtime':
            self.ask(f'{domain}.enable')

    def close(self):
        try:
            self.session = None
            self.ask('Browser.close')
        except (Wrong, OSError):        # it is killed already, or does not listen
            self.process.kill()
        self.process.wait()
        os.close(self.to)
        os.close(self.from_)
        shutil.rmtree(self.folder, ignore_errors=True)

    def read(self, until):
        while b'\0' not in self.rest:
            if not select.select([self.from_], [], [], max(0, until - time.monotonic()))[0]:
                raise Wrong('Chromium does not answer')
            more = os.read(self.from_, 1 << 20)
            if not more:
                raise Wrong('Chromium has ended')
            self.rest += more
        said, self.rest = self.rest.split(b'\0', 1)
        said = json.loads(said)
        if said.get('method') == 'Runtime.exceptionThrown':
            self.thrown.append(said['params']['exceptionDetails'].get('exception', {}).get('description', 'an exception'))
        self.loaded += said.get('method') == 'Page.loadEventFired'
        return said

    def ask(self, method, **params):
        self.last += 1
        text = {'id': self.last, 'method': method, 'params': params, **({'sessionId': self.session} if self.session else {})}
        data, until = json.dumps(text).encode() + b'\0', time.monotonic() + self.timeout
        while data:
            data = data[os.write(self.to, data):]
        while True:
            said = self.read(until)
            if said.get('id') == self.last:
                if 'error' in said:
                    raise Wrong(f'{method}: {said["error"]}')
                return said['result']

    def open(self, path, width=1280, height=900, dark=False):
        self.thrown = []
        self.ask('Emulation.setDeviceMetricsOverride', width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        self.ask('Emulation.setEmulatedMedia', features=[{'name': 'prefers-color-scheme', 'value': 'dark' if dark else 'light'}])
        seen = self.loaded
        self.ask('Page.navigate', url='file://' + path)
        until = time.monotonic() + self.timeout
        while self.loaded == seen:
            self.read(until)

    def run(self, script):
        """The value of an expression in the page."""
        said = self.ask('Runtime.evaluate', expression=script, returnByValue=True)
        if 'exceptionDetails' in said:
            raise Wrong(said['exceptionDetails'].get('exception', {}).get('description', script))
        return said['result'].get('value')

    def key(self, name):
        for kind in 'keyDown', 'keyUp':
            self.ask('Input.dispatchKeyEvent', type=kind, key=name, code=name, windowsVirtualKeyCode={'Tab': 9}.get(name, 0),
                     **({'text': name} if len(name) == 1 and kind == 'keyDown' else {}))

    def point(self, x, y):
        self.ask('Input.dispatchMouseEvent', type='mouseMoved', x=x, y=y)

    def picture(self, path):
        with open(path, 'wb') as f:
            f.write(base64.b64decode(self.ask('Page.captureScreenshot', format='png')['data']))
