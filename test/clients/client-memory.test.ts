import { readdirSync, readlinkSync } from 'node:fs';
import { getHeapStatistics } from 'node:v8';
import test, { type ExecutionContext } from 'ava';
import { stagingBytesFor } from '../../src/clients/client-memory.js';
import { HostRegion } from '../../src/memory/host-region.js';
import type { MeshCacheStore } from '../../src/node/meshcache-store.js';
import { startNode, startNodes } from '../_support/clients/client-fixture.js';
import { startEngine } from '../_support/clients/python-engine.js';
import { sampleIn } from '../_support/metrics/samples.js';
// One after the other: they count the descriptors of the process.
import { serialWithAddon, suffix } from '../_support/native/addon.js';
import { noPython } from '../_support/native/python-process.js';
import { content, until } from '../_support/support.js';

const withPython = noPython === '' ? serialWithAddon : test.serial.skip;
const why = noPython === '' ? suffix : ` (skipped: ${noPython})`;

/** Those of this process that are no sockets: nodes connect to one another as they like. */
function descriptorCount(): number {
  const kinds = readdirSync('/proc/self/fd').map((fd) => {
    try {
      return readlinkSync(`/proc/self/fd/${fd}`);
    } catch {
      return '';
    }
  });
  return kinds.filter((kind) => kind !== '' && !kind.startsWith('socket:')).length;
}

/** Runs a script to its end; it says `ok` when all that it asserts holds. */
async function runEngine(t: ExecutionContext, store: MeshCacheStore, script: string, ...args: string[]): Promise<void> {
  const engine = startEngine(t, store.clientSocket, script, ...args);
  t.is(await engine.line(), 'ok');
  t.is(await engine.ended(), 0);
}

async function nothingIsLeft(t: ExecutionContext, store: MeshCacheStore, descriptors: number): Promise<void> {
  await until(() => store.clients().length === 0);
  await until(() => descriptorCount() <= descriptors);
  const text = await store.metrics.renderPrometheus();
  t.is(sampleIn(text, 'meshcache_client_mapped_bytes'), 0);
  t.is(sampleIn(text, 'meshcache_client_requests_in_flight'), 0);
}

withPython(
  `client memory: pages go straight into and out of the client’s memory, of this node and of another${why}`,
  async (t) => {
    const [here, there] = (await startNodes(t, 2)) as [MeshCacheStore, MeshCacheStore];
    await there.set('far', content(7, 300_000));
    const before = descriptorCount();
    const engine = startEngine(
      t,
      here.clientSocket,
      `
e = Engine()
fd, m = memory(4 * MiB)
assert e.region(1, fd, 4 * MiB) == (0, 4 * MiB)
m[0:1000] = bytes(range(250)) * 4
m[5000:6000] = b'x' * 1000
assert e.move(SET, ['a', 'b'], [(1, 0, 1000), (1, 5000, 1000)]) == (0, bytes([1, 1]))
assert e.move(GET, ['a', 'far', 'none', 'b'], [(1, 10000, 1000), (1, MiB, 300000), (1, 20000, 10), (1, 3 * MiB, 999)]) == (0, bytes([1, 1, 0, 0]))
assert m[10000:11000] == m[0:1000]
say(m[MiB:MiB + 300000].hex())
# Pieces: a page of three, read into others.
assert e.move(SET, ['p'], [(1, 0, 100), (1, 5000, 200), (1, 3, 1)], 3)[1] == b'\\1'
assert e.move(GET, ['p'], [(1, 2 * MiB, 150), (1, 2 * MiB + 4096, 151)], 2)[1] == b'\\1'
assert m[2 * MiB:2 * MiB + 150] + m[2 * MiB + 4096:2 * MiB + 4096 + 151] == m[0:100] + m[5000:5200] + m[3:4]
# The same key twice, into two places.
assert e.move(GET, ['a', 'a'], [(1, 100000, 1000), (1, 200000, 1000)])[1] == bytes([1, 1])
assert m[100000:101000] == m[200000:201000] == m[0:1000]
say('ok')
sys.stdin.readline()
status, answer = e.request(3, struct.pack('<I', 1))
assert (status, answer) == (0, b'')
assert e.move(GET, ['a'], [(1, 0, 1000)])[0] == 2
assert e.request(3, struct.pack('<I', 1))[0] == 2
say('ok')
`,
    );
    t.is(await engine.line(), Buffer.from(content(7, 300_000)).toString('hex'));
    t.is(await engine.line(), 'ok');
    t.like(here.clients()[0], { mode: 'direct', regions: 1, mapped_bytes: 4 * 2 ** 20, name: 'engine' });
    t.deepEqual(await there.get('b'), new Uint8Array(1000).fill(120));
    engine.tell();
    t.is(await engine.line(), 'ok');
    t.is(await engine.ended(), 0);
    await nothingIsLeft(t, here, before);
  },
);

withPython(`client memory: a sparse region of a terabyte costs no more than a small one${why}`, async (t) => {
  const store = await startNode(t);
  const before = getHeapStatistics().external_memory;
  await runEngine(
    t,
    store,
    `
TiB = 1 << 40
e = Engine()
fd, m = memory(TiB)
assert e.region(1, fd, TiB) == (0, TiB)
end = TiB - 1000
m[end:TiB] = bytes(range(250)) * 4
assert e.move(SET, ['a'], [(1, end, 1000)]) == (0, b'\\1')
# Across a boundary of the node's views.
assert e.move(GET, ['a', 'a'], [(1, (1 << 39) - 500, 1000), (1, 0, 1000)]) == (0, b'\\1\\1')
assert m[(1 << 39) - 500:(1 << 39) + 500] == m[0:1000] == m[end:TiB]
say('ok')
`,
  );
  // Of memory that V8 counts by its length, there would be a garbage collection every 2 GiB.
  t.true(getHeapStatistics().external_memory - before < 2 ** 30);
});

test('client memory: staging memory of all clients is a part of what the machine or the container has', (t) => {
  t.is(stagingBytesFor({ memoryBytes: 2 ** 30 }), 2 ** 28);
  t.is(stagingBytesFor({ memoryBytes: 2 ** 38 }), 2 ** 32, 'and never more than 4 GiB');
});

withPython(
  `client memory: a host pool of 200 GiB attaches within a second to a node with 300,000 pages${why}`,
  async (t) => {
    t.timeout(120_000);
    const store = await startNode(t, { global_segment_size: '128mb', eviction_policy: 'lru' });
    using page = HostRegion.allocate(64);
    for (let count = 0; count < 300_000; count += 10_000) {
      const keys = Array.from({ length: 10_000 }, (_, i) => `page ${count + i}`);
      const all = <T>(value: T): T[] => keys.map(() => value);
      await store.batchSet(keys, all(page.addr), all(page.length));
    }
    t.is(store.stats().poolEntries, 300_000);
    await runEngine(
      t,
      store,
      `
import time
length = 200 << 30
fd, m = memory(length)
start = time.monotonic()
e = Engine()
assert e.region(1, fd, length) == (0, length)
m[length - 1000:length] = bytes(1000)
assert e.move(SET, ['a'], [(1, length - 1000, 1000)]) == (0, b'\\1')
assert time.monotonic() - start < 1
say('ok')
`,
    );
  },
);

withPython(`client memory: a client may have so many bytes mapped, and is told how many are left${why}`, async (t) => {
  const store = await startNode(t, { client_regions_max: '3gb' });
  await runEngine(
    t,
    store,
    `
GiB = 1 << 30
e = Engine()
fd, m = memory(4 * GiB)
assert e.region(1, fd, 4 * GiB) == (4, 3 * GiB)
assert e.region(1, fd, 2 * GiB) == (0, 2 * GiB)
assert e.region(2, fd, GiB + 1) == (4, GiB)
other = Engine()
assert other.region(1, fd, 3 * GiB) == (0, 3 * GiB)
assert e.request(3, struct.pack('<I', 1))[0] == 0
assert e.region(2, fd, 3 * GiB) == (0, 3 * GiB)
m[0:5] = b'hello'
assert e.move(SET, ['a'], [(2, 0, 5)]) == (0, b'\\1')
say('ok')
`,
  );
});

withPython(
  `client memory: what nobody has touched is at the expense of its client, but for a little${why}`,
  async (t) => {
    const store = await startNode(t, { global_segment_size: '512mb' });
    await runEngine(
      t,
      store,
      `
ABSENT = 9
GiB = 1 << 30
e = Engine()
fd = os.memfd_create('engine')
os.ftruncate(fd, GiB)
m = mmap.mmap(fd, GiB)
blocks = lambda: os.fstat(fd).st_blocks * 512
assert e.region(1, fd, GiB)[0] == 0
assert e.move(SET, ['hole'], [(1, 0, 65 * MiB)])[0] == ABSENT
assert blocks() == 0
assert e.move(SET, ['hole'], [(1, 0, 40 * MiB)]) == (0, b'\\1')
assert e.move(GET, ['hole'], [(1, 512 * MiB, 40 * MiB)])[0] == ABSENT
assert blocks() <= 64 * MiB
m[512 * MiB:552 * MiB] = b'x' * (40 * MiB)
assert e.move(GET, ['hole'], [(1, 512 * MiB, 40 * MiB)]) == (0, b'\\1')
assert m[512 * MiB:552 * MiB] == bytes(40 * MiB)
# It counts again after the pages have been taken away.
for again in range(6):
    e = Engine()
    assert e.region(1, fd, GiB)[0] == 0
    status = e.move(SET, ['more'], [(1, 600 * MiB + again * 64 * MiB, 48 * MiB)])[0]
    assert status == (0 if again < 4 else ABSENT), (again, status)
say('ok')
`,
    );
  },
);

withPython(
  `client memory: pages of any length are read into staging memory, of this node and of another${why}`,
  async (t) => {
    const [here, there] = (await startNodes(t, 2)) as [MeshCacheStore, MeshCacheStore];
    await there.set('far', content(7, 300_000));
    await here.set('near', content(8, 1000));
    const before = descriptorCount();
    await runEngine(
      t,
      here,
      `
GET_STAGED = 21
e = Engine()

def read(keys, offset, room, flags=0):
    data = [key.encode() for key in keys]
    packed = struct.pack('<I', len(data)) + b''.join(struct.pack('<H', len(k)) for k in data) + b''.join(data)
    status, answer = e.request(GET_STAGED, struct.pack('<HBQI', 0, flags, offset, room) + packed)
    return status, list(struct.iter_unpack('<II', answer)) if status == 0 else answer

assert read(['near'], 0, 10)[0] == 2, 'there is no staging memory yet'
(status, length), s = e.staging(MiB)
assert (status, length) == (0, MiB)
assert read(['far', 'none', 'near', 'near'], 4096, 400000) == (0, [(0, 300000), (0xffffffff, 0), (300000, 1000), (301000, 1000)])
assert s[304096:305096] == s[305096:306096]
# What has no room is told its length, and what follows is read.
assert read(['far', 'near'], 0, 1000) == (0, [(0xfffffffe, 300000), (0, 1000)])
assert s[0:1000] == s[304096:305096]
assert read([], 0, 0) == (0, [])
for offset, room in ((MiB, 1), (MiB - 10, 11), (1 << 40, 1)):
    assert read(['near'], offset, room)[0] == 1
for flags in (1, 16, 32, 128):
    assert read(['near'], 0, 1000, flags)[0] == 1
assert read(['near'], MiB - 1000, 1000, 2 << 1 | 8) == (0, [(0, 1000)])
say('ok')
`,
    );
    await nothingIsLeft(t, here, before);
  },
);

withPython(
  `client memory: staging memory is the node’s, one a client, and may be mixed with regions${why}`,
  async (t) => {
    const store = await startNode(t);
    const before = descriptorCount();
    await runEngine(
      t,
      store,
      `
e = Engine()
assert e.move(GET, ['a'], [(0, 0, 10)])[0] == 2
assert e.staging(0)[0] == (1, 0)
assert e.staging(0, token=b'x' * 16)[0] == (6, 0)
(status, length), s = e.staging(2 * MiB)
assert (status, length) == (0, 2 * MiB)
(status, length), again = e.staging(8 * MiB)
assert (status, length) == (0, 2 * MiB)
s[0:5] = b'hello'
assert again[0:5] == b'hello'
fd, m = memory(MiB)
assert e.region(9, fd, MiB)[0] == 0
m[0:6] = b' world'
assert e.move(SET, ['a'], [(0, 0, 5), (9, 0, 6)], 2)[1] == b'\\1'
assert e.move(GET, ['a'], [(9, 4096, 2), (0, 4096, 9)], 2)[1] == b'\\1'
assert m[4096:4098] + s[4096:4105] == b'hello world'
assert e.move(GET, ['a'], [(0, 2 * MiB - 10, 11)])[0] == 1
# Left, and had anew.
assert e.request(3, struct.pack('<I', 0))[0] == 0
assert e.move(GET, ['a'], [(0, 0, 11)])[0] == 2
(status, length), s = e.staging(MiB)
assert (status, length) == (0, MiB)
assert e.move(GET, ['a'], [(0, 0, 11)])[1] == b'\\1'
assert s[0:11] == b'hello world'
# More than there is for one.
big = Engine('big')
(status, length), s = big.staging(1 << 40)
assert status == 0 and length == 256 * MiB, (status, length)
say('ok')
`,
    );
    await nothingIsLeft(t, store, before);
  },
);

withPython(`client memory: what cannot be is refused, and the client served as before${why}`, async (t) => {
  const store = await startNode(t);
  await store.set('a', content(1, 4096));
  const before = descriptorCount();
  await runEngine(
    t,
    store,
    `
import tempfile
e, other = Engine(), Engine('other')
fd, m = memory(MiB)
assert e.region(1, fd, MiB) == (0, MiB)
assert e.region(1, fd, MiB)[0] == 1, 'the id is in use'
assert e.region(0, fd, MiB)[0] == 1, 'staging'
assert e.region(2, None, MiB)[0] == 1, 'no descriptor'
assert e.region(2, fd, MiB + 4096)[0] == 1, 'longer than the file'
assert e.region(2, fd, 0)[0] == 1
assert e.region(2, fd, (1 << 64) - 1)[0] == 1
assert e.region(2, fd, 1 << 50)[0] == 4, 'more than the node maps'
assert e.record(1, 2, 2, MiB, [fd])[0][0] == 1, 'unknown flags'
assert e.record(7, 2, 0, MiB, [fd])[0][0] == 1
assert e.record(1, 2, 0, MiB, [fd], magic=1)[0][0] == 1
assert e.record(1, 2, 0, MiB, [fd], version=2)[0][0] == 1
assert e.region(2, fd, MiB, token=bytes(16))[0] == 6
r, w = os.pipe()
assert e.region(2, r, 4096)[0] == 1, 'a pipe'
assert e.region(2, e.peer.fileno(), 4096)[0] == 1, 'a socket'
assert e.region(2, os.open('/dev/zero', os.O_RDWR), 4096)[0] == 1, 'a device'
assert e.region(2, os.open('/tmp', os.O_RDONLY), 4096)[0] == 1, 'a folder'
on_disk = os.open('/proc/self/exe', os.O_RDONLY)
assert e.region(2, on_disk, 4096, writable=False)[0] == 1, 'a file that is not in memory'
file = tempfile.NamedTemporaryFile(dir='/dev/shm')
file.truncate(MiB)
readonly = os.open(file.name, os.O_RDONLY)
assert e.region(2, readonly, MiB, writable=True)[0] == 1
assert e.region(2, readonly, MiB, writable=False)[0] == 0
assert e.move(SET, ['zeros'], [(2, 0, 4096)]) == (0, b'\\1')
assert e.move(GET, ['a'], [(2, 0, 4096)])[0] == 1
bad = {
    'beyond the end': (1, MiB - 4095, 4096), 'far beyond': (1, 1 << 52, 4096), 'negative': (1, (1 << 64) - 1, 4096), 'no bytes': (1, 0, 0),
    'all bytes': (1, 0, 0xffffffff), 'above 2^53': (1, (1 << 53) + 1, 1),
}
for type in (GET, SET):
    for what, row in bad.items():
        status, text_of = e.move(type, ['a'], [row])
        assert status == 1, (what, status)
    assert e.move(type, ['a'], [(3, 0, 4096)])[0] == 2
    assert e.move(type, ['a'], [(0xffffffff, 0, 4096)])[0] == 2
for rows in ([(1, 0, 4096), (1, 4095, 4096)], [(1, 4096, 4096), (1, 0, 4097)], [(1, 0, 4096), (1, 0, 4096)]):
    status, text_of = e.move(GET, ['a', 'b'], rows)
    assert status == 1 and not any(c.isdigit() for c in text_of.decode()), text_of
# Region 2 of another client is another one, and a foreign token gives memory to its owner.
assert other.move(GET, ['a'], [(1, 0, 4096)])[0] == 2
assert other.region(5, fd, MiB, token=e.token)[0] == 0
assert other.move(GET, ['a'], [(5, 0, 4096)])[0] == 2
assert e.move(GET, ['a'], [(5, 0, 4096)]) == (0, b'\\1')
assert e.request(GET, e.rows(['a'], [(1, 0, 4096)], flags=1))[0] == 1
assert e.request(GET, e.rows(['a'], [(1, 0, 4096)], flags=16))[0] == 1
assert e.request(GET, e.rows(['a'], [], pieces=0))[0] == 1
assert e.request(GET, e.rows(['a'], [(1, 0, 4096)]) + b'x')[0] == 1
assert e.request(GET, e.rows(['a'] * 300, [(1, 0, 1)] * 300 * 255, pieces=255))[0] == 1, 'too many pieces'
count = 2
status = 0
while status == 0:
    count += 1
    status, _ = e.region(1000 + count, fd, 4096)
assert status == 4 and count <= 66, (status, count)
assert e.move(GET, ['a'], [(1, 0, 4096)]) == (0, b'\\1')
say('ok')
`,
  );
  await nothingIsLeft(t, store, before);
});

withPython(
  `client memory: a file that is cut short fails what uses it, and never becomes a wrong page${why}`,
  async (t) => {
    const store = await startNode(t, { global_segment_size: '64mb' });
    const before = descriptorCount();
    await runEngine(
      t,
      store,
      `
import random
seed = int.from_bytes(os.urandom(4), 'little')
print('seed', seed, file=sys.stderr)
random.seed(seed)
e = Engine()
fd, m = memory(MiB)
assert e.region(1, fd, MiB)[0] == 0
os.ftruncate(fd, 4096)
assert e.move(SET, ['before'], [(1, 8192, 4096)])[0] == 3
assert e.move(SET, ['before'], [(1, 8192, 4096)])[0] == 2, 'the region is dropped'
size = 2 * MiB
count = 4
def page(round, i):
    return bytes([round % 251 + 1, i + 1]) * (size // 2)
# Before it is asked for, while it is under way, and after.
ends = {0: 0, 3: 0}
for round in range(60):
    fd, m = memory(count * size)
    for i in range(count): os.pwrite(fd, page(round, i), i * size)
    assert e.region(1, fd, count * size)[0] == 0
    names = ['%d-%d' % (round, i) for i in range(count)]
    if round % 4 == 0: os.ftruncate(fd, random.randrange(count * size))
    id = e.send(SET, e.rows(names, [(1, i * size, size) for i in range(count)]))
    for _ in range(random.randrange(3000)): pass
    if round % 4 in (1, 2): os.ftruncate(fd, random.randrange(count * size))
    _, status, flags = e.receive()
    assert status in (0, 3), (status, flags)
    ends[status] += 1
    if status == 0: e.request(3, struct.pack('<I', 1))
    os.close(fd)
    for i, name in enumerate(names):
        got = e.get_bytes([name])[0]
        assert got is None or got == page(round, i), 'a wrong page was published: %s, status %d, seed %d' % (name, status, seed)
assert ends[0] >= 15 and ends[3] >= 15, ends
# GET into a file that is cut short.
fd, m = memory(size)
assert e.region(2, fd, size)[0] == 0
m[:] = page(7, 1)
assert e.move(SET, ['whole'], [(2, 0, size)]) == (0, b'\\1')
for round in range(30):
    fd, m = memory(2 * size)
    assert e.region(1, fd, 2 * size)[0] == 0
    id = e.send(GET, e.rows(['whole'], [(1, size, size)]))
    for _ in range(random.randrange(2000)): pass
    os.ftruncate(fd, size + random.randrange(size))
    _, status, flags = e.receive()
    assert status in (0, 3), status
    if status == 0:
        assert e.move(GET, ['whole'], [(1, size, size)])[0] == 3
    os.close(fd)
assert e.get_bytes(['whole'])[0] == page(7, 1)
say('ok')
`,
    );
    await nothingIsLeft(t, store, before);
  },
);

withPython(
  `client memory: nothing is left of clients that are killed in the middle of their requests${why}`,
  async (t) => {
    const [store, far] = (await startNodes(t, 2)) as [MeshCacheStore, MeshCacheStore];
    await far.set('far', content(1, 2 ** 20));
    const before = descriptorCount();
    for (let round = 0; round < 8; round++) {
      const engines = [0, 1, 2].map(() =>
        startEngine(
          t,
          store.clientSocket,
          `
e = Engine()
fd, m = memory(16 * MiB)
assert e.region(1, fd, 16 * MiB)[0] == 0
e.staging(MiB)
import threading
def drain():
    try:
        while e.peer.recv(65536): pass
    except OSError: pass
threading.Thread(target=drain, daemon=True).start()
say('ready')
while True:
    for i in range(8):
        e.send(SET, e.rows(['k%d-%d' % (os.getpid(), i)], [(1, i * MiB, MiB)]))
        e.send(GET, e.rows(['far'], [(1, (8 + i) * MiB, MiB)]))
        e.send(9, struct.pack('<I', 0))
`,
        ),
      );
      for (const engine of engines) t.is(await engine.line(), 'ready');
      const served = Math.max(...store.clients().map(({ requests }) => requests));
      await until(() => store.clients().some(({ requests }) => requests > served + 20));
      for (const { pid } of engines) process.kill(pid, 'SIGKILL');
      await Promise.all(engines.map((engine) => engine.ended()));
      await nothingIsLeft(t, store, before);
    }
    await runEngine(t, store, `\ne = Engine()\nassert e.request(14)[0] == 0\nsay('ok')\n`);
  },
);
