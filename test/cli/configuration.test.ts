import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import { parseConfiguration, readConfiguration } from '../../src/cli/settings/configuration.js';
import { CONFIG_KEYS } from '../../src/config.js';

const ADDR = { discovery_addr: '127.0.0.1:1' };

test('configuration: every key is taken from the environment', async (t) => {
  for (const key of CONFIG_KEYS) {
    const { mapping, origins, warnings } = await readConfiguration({}, { [`MESHCACHE_${key.toUpperCase()}`]: 'x' });
    t.deepEqual(mapping, { [key]: 'x' });
    t.is(origins.get(key), `MESHCACHE_${key.toUpperCase()}`);
    const isOfDisk = key.startsWith('disk_') && key !== 'disk_enabled';
    t.is(warnings.length, isOfDisk ? 1 : 0, key);
  }
});

test('configuration: a variable that is empty counts as not set', async (t) => {
  const { mapping } = await readConfiguration({}, { MESHCACHE_METRICS_TOKEN: '', MESHCACHE_VNODES: '3' });
  t.deepEqual(mapping, { vnodes: '3' });
});

test('configuration: names that are nearly those of keys are told of, with the nearest', async (t) => {
  const nearest = {
    MESHCACHE_DISCOVERY: 'MESHCACHE_DISCOVERY_ADDR',
    MESHCACHE_DISCOVERY_ADDRESS: 'MESHCACHE_DISCOVERY_ADDR',
    MESHCACHE_VNODE: 'MESHCACHE_VNODES',
    MESHCACHE_METRIC_TOKEN: 'MESHCACHE_METRICS_TOKEN',
    MESHCACHE_DISKPATH: 'MESHCACHE_DISK_PATH',
  };
  for (const [name, near] of Object.entries(nearest)) {
    const { warnings, mapping } = await readConfiguration({}, { [name]: 'hidden' });
    t.deepEqual(warnings, [`${name} in the environment is not known; did you mean ${near}?`]);
    t.deepEqual(mapping, {});
  }
});

test('configuration: variables that the program, its build and its tests use, and those of Kubernetes, are left alone', async (t) => {
  const files = ['src', 'test'].flatMap((folder) =>
    readdirSync(folder, { recursive: true, encoding: 'utf8' }).map((file) => join(folder, file)),
  );
  const names = ['package.json', 'build.config.mjs', ...files.filter((file) => /\.(ts|mjs)$/.test(file))].flatMap(
    (file) =>
      [...readFileSync(file, 'utf8').matchAll(/process\.env\.(MESHCACHE_[A-Z_]+)/g)].map((match) => match[1] as string),
  );
  t.true(new Set(names).size > 8, `${names}`);
  const kubernetes = ['MESHCACHE_PORT', 'MESHCACHE_SERVICE_HOST', 'MESHCACHE_PORT_31997_TCP_ADDR'];
  for (const name of [...names, ...kubernetes, 'MESHCACHE_NO_RDMA', 'HOME', 'meshcache_vnode']) {
    const value = { MESHCACHE_LOG: 'info', MESHCACHE_LOG_FORMAT: 'json' }[name] ?? 'x';
    t.deepEqual((await readConfiguration({}, { [name]: value })).warnings, [], name);
  }
});

test('configuration: a level or a format of the log that does not exist is told of', async (t) => {
  const format = await readConfiguration({}, { MESHCACHE_LOG_FORMAT: 'xml' });
  t.regex(format.warnings.join('\n'), /^MESHCACHE_LOG_FORMAT .*got "xml", allowed is text, json; text is taken$/);
  const { warnings } = await readConfiguration({}, { MESHCACHE_LOG: 'trace' });
  t.is(warnings.length, 1);
  t.regex(warnings[0] ?? '', /MESHCACHE_LOG .*got "trace", allowed is debug, info, warn, error; warn is taken/);
  t.deepEqual((await readConfiguration({}, { MESHCACHE_LOG: '' })).warnings, []);
});

test('configuration: options win, whatever the spelling; an error names where the value was given', async (t) => {
  const environment = { MESHCACHE_GLOBAL_SEGMENT_SIZE: '1mb', MESHCACHE_VNODES: 'many' };
  const right = await readConfiguration({ option: { ...ADDR, globalSegmentSize: '2mb', vnodes: '7' } }, environment);
  t.like(parseConfiguration(right), { globalSegmentSize: 2 * 2 ** 20, vnodes: 7 });
  const wrong = await readConfiguration({ option: ADDR }, environment);
  t.throws(() => parseConfiguration(wrong), { message: /^MESHCACHE_VNODES: configuration key "vnodes": got "many"/ });
});
