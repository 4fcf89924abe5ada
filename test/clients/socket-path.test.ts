import { chmodSync, chownSync, mkdirSync, rmSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import { MeshCacheClient } from '../../src/client/meshcache-client.js';
import { defaultClientSocket, distrustOf } from '../../src/clients/socket-path.js';
import { folder } from '../_support/clients/client-fixture.js';
import { createStore } from '../_support/node/store-fixture.js';
import { freePort } from '../_support/support.js';

const uid = process.geteuid?.() ?? 0;
const isRoot = uid === 0;
const OTHER_UID = 54_321;

/** A folder that everybody may write into, as /tmp is. */
function sticky(path: string): string {
  chmodSync(path, 0o1777);
  return path;
}

test('socket path: a default folder in a place for everybody must belong to its user, and be closed to others', (t) => {
  const runtimeFolder = sticky(folder(t));
  const parts = { runtimeFolder, uid };
  const socket = defaultClientSocket(parts);
  const own = join(runtimeFolder, 'meshcache');
  t.is(distrustOf(socket, parts), '', 'there is none');
  mkdirSync(own, { mode: 0o700 });
  t.is(distrustOf(socket, parts), '');
  t.is(distrustOf(defaultClientSocket(parts, 2), parts), '');
  for (const mode of [0o777, 0o1777, 0o770, 0o702]) {
    chmodSync(own, mode);
    t.regex(distrustOf(socket, parts), /^other users may write into .*\/meshcache; it must have mode 0700$/);
    t.regex(distrustOf(defaultClientSocket(parts, 2), parts), /^other users may write/);
  }
  chmodSync(own, 0o755);
  t.is(distrustOf(socket, parts), '');
  // Somebody else's folder, seen by another user: that of root is as good as an own one.
  const theirs = { runtimeFolder, uid: uid + 1 };
  const expected = isRoot ? '' : `${own} belongs to user ${uid}, not to user ${uid + 1}`;
  t.is(distrustOf(defaultClientSocket(theirs), theirs), expected);
  rmSync(own, { recursive: true });
  symlinkSync(runtimeFolder, own);
  t.is(distrustOf(socket, parts), `${own} is not a folder`);
});

test('socket path: a folder in a place that only its user or root may write into is theirs, whatever it is', (t) => {
  const runtimeFolder = folder(t);
  const parts = { runtimeFolder, uid };
  const socket = defaultClientSocket(parts);
  mkdirSync(join(runtimeFolder, 'meshcache'), { mode: 0o770 });
  t.is(distrustOf(socket, parts), '');
  chmodSync(runtimeFolder, 0o775);
  chmodSync(join(runtimeFolder, 'meshcache'), 0o770);
  t.regex(distrustOf(socket, parts), /^other users may write into/);
});

test('socket path: whoever names a path vouches for it', (t) => {
  const place = sticky(folder(t));
  const parts = { runtimeFolder: place, uid };
  t.is(distrustOf(join(place, 'node.sock'), parts), '');
  t.is(distrustOf(join(place, 'other', 'node.sock'), parts), '');
});

/** Alone while it runs: the process has another environment then. */
test.serial(
  'socket path: a client does not attach to a node at the default path that may be of another user',
  async (t) => {
    const runtimeFolder = sticky(folder(t));
    const own = join(runtimeFolder, 'meshcache');
    const store = await createStore(await freePort(), { client_socket: join(own, 'node.sock') });
    const [before, socketBefore] = [process.env.XDG_RUNTIME_DIR, process.env.MESHCACHE_SOCKET];
    process.env.XDG_RUNTIME_DIR = runtimeFolder;
    delete process.env.MESHCACHE_SOCKET;
    try {
      chmodSync(own, 0o700);
      await using trusted = await MeshCacheClient.connect({ required: true });
      t.true(trusted.isConnected);
      chmodSync(own, 0o777);
      await t.throwsAsync(MeshCacheClient.connect({ required: true }), {
        message: /other users may write into .*\/meshcache; .* remove it, or name a socket in another folder/,
      });
      if (isRoot) {
        chmodSync(own, 0o755);
        chownSync(own, OTHER_UID, OTHER_UID);
        await t.throwsAsync(MeshCacheClient.connect({ required: true }), {
          message: new RegExp(`${own} belongs to user ${OTHER_UID}, not to user 0`),
        });
      }
    } finally {
      process.env.XDG_RUNTIME_DIR = before ?? '';
      process.env.MESHCACHE_SOCKET = socketBefore ?? '';
      await store.close();
    }
  },
);
