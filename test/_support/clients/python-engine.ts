import type { ExecutionContext } from 'ava';
import { PythonProcess } from '../native/python-process.js';

/** Beginning of every script: a client in Python with memory of its own, which it can show to a node. */
const ENGINE = `
path = sys.argv[1]
def frame(type, id, body=b'', deadline=0):
    return struct.pack('<IHHII', len(body), type, 0, id, deadline) + body
def text(value):
    return struct.pack('<H', len(value)) + value.encode()
def keys(names):
    return struct.pack('<I', len(names)) + b''.join(struct.pack('<H', len(n.encode())) for n in names) + ''.join(names).encode()
def exactly(peer, length):
    data = b''
    while len(data) < length:
        more = peer.recv(length - len(data))
        if not more: raise EOFError
        data += more
    return data
class Engine:
    def __init__(self, name='engine'):
        self.peer = connect(path)
        self.id = 0
        body = struct.pack('<IHHI', 0x4348434d, 1, 1, 0) + text(name) + struct.pack('<I', os.getpid())
        status, answer = self.request(1, body)
        assert status == 0, answer
        self.token = answer[24:40]
    def send(self, type, body=b'', deadline=0):
        self.id += 1
        self.peer.sendall(frame(type, self.id, body, deadline))
        return self.id
    def receive(self):
        length, type, status, id, _ = struct.unpack('<IHHII', exactly(self.peer, 16))
        return id, status, exactly(self.peer, length)
    def request(self, type, body=b'', deadline=0):
        want = self.send(type, body, deadline)
        id, status, answer = self.receive()
        assert id == want, (id, want)
        return status, answer
    def record(self, kind, id, flags, length, fds=(), token=None, magic=0x4446434d, version=1):
        data = struct.pack('<IHH', magic, version, kind) + (token or self.token) + struct.pack('<IIQQ', id, flags, length, 0)
        got, back = answer(send(path + '.fds', data, fds))
        return struct.unpack('<IIQ', got)[::2] if got else None, back
    def region(self, id, fd, length, writable=True, **more):
        return self.record(1, id, int(writable), length, [fd] if fd is not None else [], **more)[0]
    def staging(self, length, **more):
        got, fds = self.record(2, 0, 0, length, **more)
        return got, mmap.mmap(fds[0], got[1]) if fds else None
    def move(self, type, names, rows, pieces=1, flags=0, pool=''):
        return self.request(type, self.rows(names, rows, pieces, flags, pool))
    def rows(self, names, rows, pieces=1, flags=0, pool=''):
        return text(pool) + bytes([flags, pieces]) + keys(names) + b''.join(struct.pack('<QII', o, l, r) for r, o, l in rows)
    def get_bytes(self, names):
        status, answer = self.request(7, text('') + b'\\0' + keys(names))
        assert status == 0, answer
        lengths = struct.unpack_from('<%dI' % len(names), answer)
        at = 4 * len(names)
        pages = []
        for length in lengths:
            pages.append(None if length >= 0xfffffffe else answer[at:at + length])
            at += 0 if length >= 0xfffffffe else length
        return pages
def memory(length):
    fd = os.memfd_create('engine')
    os.ftruncate(fd, length)
    return fd, mmap.mmap(fd, length)
GET, SET = 5, 6
MiB = 1 << 20
`;

/** Starts a script as a client of the node at `socket`; `args` are `sys.argv[2:]`. */
export function startEngine(t: ExecutionContext, socket: string, script: string, ...args: string[]): PythonProcess {
  return PythonProcess.start(t, ENGINE + script, socket, ...args);
}
