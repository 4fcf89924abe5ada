import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import test from 'ava';

test('sealed: a store with an environment of its own touches nothing of the machine', (t) => {
  const program = fileURLToPath(new URL('./node-sealed-program.js', import.meta.url));
  const run = () => spawnSync(process.execPath, [program], { encoding: 'utf8', timeout: 60_000 });
  const { stdout, stderr, status } = run();
  t.is(status, 0, stderr);
  const { violations, logged, nodeId, ...result } = JSON.parse(stdout);
  t.deepEqual(violations, []);
  t.deepEqual(result, {
    isSet: true,
    isRead: true,
    found: 1,
    deleted: [true],
    entries: 0,
    endpoint: '10.0.0.1:5000',
    residentBytes: 2 ** 20,
    takenBytes: 2 ** 20,
    // The event loop is observed from when somebody asks for a report.
    observationsAtStart: 0,
    observations: 2,
    takenBytesAfter: 0,
    timersAfter: 0,
    listeningAfter: 0,
  });
  t.is(stderr, '');
  t.true(logged.includes('node started, not joined yet'));
  // Its id is random, and all that is random comes from a seed.
  t.is(JSON.parse(run().stdout).nodeId, nodeId);
});
