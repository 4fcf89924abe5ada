import test from 'ava';
import { formatEndpoint, parseEndpoint } from '../../src/base/environment/network.js';
import { seededRandom } from '../../src/base/environment/random.js';
import { ArgumentError, ClosedError, ConfigError, MeshCacheError } from '../../src/base/errors.js';
import { nearestName } from '../../src/base/names.js';
import { formatSize, parseSize } from '../../src/base/sizes.js';

test('errors: every kind has its code, its name and its cause', (t) => {
  const cause = new Error('below');
  const error = new ConfigError('what', { cause, retryable: true });
  t.true(error instanceof MeshCacheError);
  t.like(error, { code: 'ERR_CONFIG', name: 'ConfigError', message: 'what', retryable: true, cause });
  t.is(new ArgumentError('x').code, 'ERR_ARGUMENT');
  t.is(new ClosedError('the store').message, 'the store is closed');
  t.false(new ArgumentError('x').retryable);
});

test('sizes: what is not a size is undefined', (t) => {
  for (const value of [
    '',
    'gb',
    '-1',
    '1e3',
    '0x10',
    '1 pb',
    '1.5.5',

    '99999999tb',
    -1,
    1.5,
    Number.NaN,
    2 ** 60,
    null,
    {},
  ]) {
    t.is(parseSize(value), undefined, String(value));
  }
  t.is(parseSize('0'), 0);
  t.is(parseSize(' 2 Kb '), 2048);
});

test('sizes: are shown with binary units', (t) => {
  t.is(formatSize(512), '512 B');
  t.is(formatSize(1.5 * 2 ** 30), '1.5 GiB');
});

test('endpoints: text and back, IPv6 in brackets', (t) => {
  for (const text of ['host:1', '127.0.0.1:65535', '[::1]:80']) {
    t.is(formatEndpoint(parseEndpoint(text) as { host: string; port: number }), text);
  }
  for (const text of ['', 'host', 'host:', ':1', 'host:65536', 'host:-1', 'ho st:1', '::1:80', 'host:1:2']) {
    t.is(parseEndpoint(text), undefined, text);
  }
});

test('random: the same seed gives the same sequence, another seed another one', (t) => {
  t.deepEqual(seededRandom(5).bytes(64), seededRandom(5).bytes(64));
  t.notDeepEqual(seededRandom(5).bytes(64), seededRandom(6).bytes(64));
});

test('names: a misspelt one and the beginning of one are told, and nothing that is like neither', (t) => {
  const names = ['vnodes', 'zone', 'socket', 'modelName', 'timeoutMs', 'device_name', 'metrics_token'];
  for (const [given, meant] of [
    ['sock', 'socket'],
    ['sokcet', 'socket'],
    ['model', 'modelName'],
    ['timeout', 'timeoutMs'],
    ['vnode', 'vnodes'],
    ['metrics_tokn', 'metrics_token'],
    ['name', undefined],
    ['path', undefined],
    ['xy', undefined],
  ] as const) {
    t.is(nearestName(given, names), meant, given);
  }
});
