import { chmodSync, chownSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { inspect } from 'node:util';
import test from 'ava';
import { ClusterSecrets } from '../../src/base/environment/credentials.js';
import { seededRandom } from '../../src/base/environment/random.js';
import { ConfigError } from '../../src/base/errors.js';
import { isReadableByOthers } from '../../src/base/settings/named-file.js';
import { FrameTags, TAG_BYTES } from '../../src/memory/frame-tags.js';
import { ClientHandshake, ServerHandshake } from '../../src/net/auth.js';
import { PendingConnections } from '../../src/net/connection-limits.js';
import {
  readSecretsFile,
  readSecretsFileAgain,
  securedEnvironment,
} from '../../src/net/credentials/secured-environment.js';
import { readAuthorityFile } from '../../src/net/credentials/tls-files.js';
import { systemFiles } from '../../src/system/files/system-files.js';
import { systemEnvironment } from '../../src/system/system-environment.js';

const folder = mkdtempSync(join(tmpdir(), 'meshcache-auth-'));
test.after.always(() => rmSync(folder, { recursive: true, force: true }));

function file(name: string, text: string, mode = 0o600): string {
  const path = join(folder, name);
  writeFileSync(path, text);
  chmodSync(path, mode);
  return path;
}

const GREETINGS: readonly [string, string] = [
  '68656c6c6f20303172f0fd396070b0a9bf80ed531e5ee7fcd5ec4008cbd9a7ab3e71eba69c06a2b1' +
    'c0f1134578bd147505b7a5220814036456c46d0f12a1ed605687a139b24eb36e',
  '68656c6c6f203031798072b46d47737aa365c02c4a81630ad7426163e92c754abf9992427571c74d' +
    'c0f1134578bd147505b7a5220814036456c46d0f12a1ed605687a139b24eb36e',
];
/** Client and server: `openssl dgst -sha256 -hmac "the secret"` over what the protocol's document says. */
const PROOFS: readonly [string, string] = [
  '6f15e5b1bab49a047f23fce0149aa1d55860d550243a57afb53b7f402b02d425',
  '7269ef080238eab50ff15c38d12bf49f472df903ef9e93e6e901c497168e6f0a',
];

function answerOf(server: ServerHandshake, greeting: Buffer, proofs: Buffer) {
  const answer = server.answer(greeting, proofs);
  if (typeof answer === 'string') throw new Error(answer);
  return answer;
}

/** Of part 3 of the client's frame 0, "a frame": HKDF and AES-GCM of Python's `cryptography`. */
const TAG = '04d1725c66a41e31ca38c911be3c66de';

test('authentication: proofs and tags are what the protocol says, byte for byte', (t) => {
  const hello = Buffer.from('hello 01');
  const secrets = ClusterSecrets.of(['the secret']) as ClusterSecrets;
  const client = new ClientHandshake({ plane: 'rpc', secrets, random: seededRandom(1), hello, target: 'control a:1' });
  const server = new ServerHandshake({ plane: 'rpc', secrets, random: seededRandom(2), hello, target: 'control a:1' });
  const proofs = client.prove(server.greeting) as Buffer;
  const { proof: answer, keys } = answerOf(server, client.greeting, proofs);
  t.is(client.greeting.toString('hex'), GREETINGS[0]);
  t.is(server.greeting.toString('hex'), GREETINGS[1]);
  t.is(proofs.subarray(0, 32).toString('hex'), PROOFS[0]);
  t.is(answer.toString('hex'), PROOFS[1]);
  t.truthy(client.answered(answer));
  t.is(client.answered(proofs.subarray(0, 32)), undefined);
  const tagged = Buffer.concat([Buffer.from('a frame'), Buffer.alloc(TAG_BYTES)]);
  new FrameTags(keys.received).tagFrame(3, tagged);
  t.is(tagged.toString('hex', tagged.length - TAG_BYTES), TAG);
});

test('authentication: a proof counts for its connection alone', (t) => {
  const hello = Buffer.from('hello 01');
  const secrets = ClusterSecrets.of(['the secret']) as ClusterSecrets;
  const parts = { plane: 'data', secrets, random: systemEnvironment().random, hello, target: 'data a:1' } as const;
  const [client, another] = [new ClientHandshake(parts), new ClientHandshake(parts)];
  const [server, restarted] = [new ServerHandshake(parts), new ServerHandshake(parts)];
  const proofs = client.prove(server.greeting) as Buffer;
  answerOf(server, client.greeting, proofs);
  t.is(server.answer(another.greeting, proofs), 'wrong');
  t.is(restarted.answer(client.greeting, proofs), 'wrong');
  for (let bit = 0; bit < 256; bit += 5) {
    const damaged = Buffer.from(proofs);
    damaged[bit >> 3] = (damaged[bit >> 3] as number) ^ (1 << (bit & 7));
    t.is(server.answer(client.greeting, damaged), 'wrong');
  }
});

test('secrets: nothing that prints an object shows them', (t) => {
  const secrets = ClusterSecrets.of(['hush-hush-1', 'hush-hush-2']) as ClusterSecrets;
  const shown = [
    inspect(secrets),
    inspect({ a: [secrets] }, { depth: 9, showHidden: true }),
    JSON.stringify({ secrets }),
  ];
  for (const text of [...shown, String(secrets), JSON.stringify(Object.entries(secrets))]) t.notRegex(text, /hush/);
  t.deepEqual(secrets.reveal(), ['hush-hush-1', 'hush-hush-2']);
});

test('secrets: one or two texts, none empty; the same one twice is one', (t) => {
  for (const wrong of [[], [''], ['  '], [7], ['a', ''], ['a', 'b', 'c'], ['x'.repeat(1025)]]) {
    t.is(ClusterSecrets.of(wrong), undefined, JSON.stringify(wrong).slice(0, 40));
  }
  t.deepEqual(ClusterSecrets.of([' a ', 'a'])?.reveal(), ['a']);
});

test('secrets: a file has one or two lines, and is refused by key and path without its content', (t) => {
  t.deepEqual(readSecretsFile(file('one', 'first one\n'), systemFiles).reveal(), ['first one']);
  t.deepEqual(readSecretsFile(file('two', 'first one\r\n\nsecond one'), systemFiles).reveal(), [
    'first one',
    'second one',
  ]);
  t.false(isReadableByOthers(file('private', 'a', 0o640), systemFiles));
  t.true(isReadableByOthers(file('public', 'a', 0o644), systemFiles));
  for (const path of [
    file('empty', '\n\n'),
    file('three', 'hush a\nhush b\nhush c'),
    join(folder, 'nothing'),
    folder,
  ]) {
    const error = t.throws(() => readSecretsFile(path, systemFiles), {
      instanceOf: ConfigError,
      message: /"cluster_secret_file"/,
    });
    t.true(error?.message.includes(path));
    t.notRegex(inspect(error), /hush/);
  }
});

const ownsAll = process.geteuid?.() === 0 ? test : test.skip;
const whyNot = process.geteuid?.() === 0 ? '' : ' (skipped: needs root)';

test('secrets: a file that every user of the machine could change is refused, at a start and while a node runs', async (t) => {
  const path = file('open', 'hush hush\n', 0o666);
  const says = {
    instanceOf: ConfigError,
    message: /"cluster_secret_file": .*open can be changed by every user of this machine; chmod o-w$/,
  };
  t.throws(() => readSecretsFile(path, systemFiles), says);
  await t.throwsAsync(readSecretsFileAgain(path, systemFiles), says);
  chmodSync(path, 0o660);
  t.deepEqual(readSecretsFile(path, systemFiles).reveal(), ['hush hush']);
});

ownsAll(`secrets: a file of another user is refused${whyNot}`, async (t) => {
  const path = file('foreign', 'hush hush\n');
  chownSync(path, 12_345, 12_345);
  const says = {
    instanceOf: ConfigError,
    message: /belongs to another user, who could change it; chown it to root or to this user$/,
  };
  t.throws(() => readSecretsFile(path, systemFiles), says);
  await t.throwsAsync(readSecretsFileAgain(path, systemFiles), says);
  t.throws(() => readAuthorityFile('tls_ca_file', path, systemFiles), says);
});

test('secrets: a file that everybody can read and a short secret are said in the log, by path and length alone', (t) => {
  const lines: string[] = [];
  const env = systemEnvironment({ log: { log: (...record) => lines.push(JSON.stringify(record)) } });
  const path = file('short', 'hush\n', 0o644);
  t.deepEqual(securedEnvironment({ clusterSecretFile: path }, env).secrets?.reveal(), ['hush']);
  t.is(lines.length, 2);
  t.true(lines[0]?.includes(path));
  t.notRegex(lines.join(), /"hush"/);
  lines.length = 0;
  securedEnvironment({ clusterSecretFile: file('long', 'a secret of many letters') }, env);
  t.deepEqual(lines, []);
});

test('pending connections: the oldest gives way to a new one', (t) => {
  const dropped: number[] = [];
  const pending = new PendingConnections<number>(3, (connection) => dropped.push(connection));
  for (const connection of [1, 2, 3]) pending.add(connection);
  pending.delete(2);
  pending.add(4);
  t.deepEqual(dropped, []);
  pending.add(5);
  t.deepEqual(dropped, [1]);
  pending.dropAll();
  t.deepEqual(dropped, [1, 3, 4, 5]);
  t.is(pending.count, 0);
  pending.dropOldest();
});
