import { isUtf8 } from 'node:buffer';
import { X509Certificate } from 'node:crypto';
import { join } from 'node:path';
import { inspect, isDeepStrictEqual } from 'node:util';
import { ConfigError } from '../../../src/base/errors.js';
import { SECRET_MAX_CHARACTERS, SECRETS_MAX_COUNT } from '../../../src/base/limits.js';
import { securedEnvironment } from '../../../src/net/credentials/secured-environment.js';
import { readTlsIdentity } from '../../../src/net/credentials/tls-files.js';
import { systemFiles } from '../../../src/system/files/system-files.js';
import { check, type Fuzzer } from '../fuzzer.js';
import { memoryEnvironment } from '../memory-environment.js';
import { Scratch } from '../scratch-file.js';
import { CA, CERT, KEY } from '../tls-seeds.js';

const scratch = new Scratch();
/** Shorter ones may stand in a message by chance. */
const SECRET_MIN_CHARACTERS = 8;

export const secretFiles: Fuzzer = {
  name: 'secret-files',
  what: 'files with secrets: one or two, or refused; and never shown',
  form: 'bytes',
  inputMaxBytes: 3000,
  tokens: ['\n', '\r\n', '\ufeff', '\u2028', '[secret]', '\0', ' '.repeat(9)].map((text) => Buffer.from(text)),
  seeds: () =>
    [
      'secret-0123456789\n',
      'secret-0123456789\r\nsecret-9876543210\n\n',
      'a\nb\nc',
      '',
      's'.repeat(SECRET_MAX_CHARACTERS),
    ].map((text) => Buffer.from(text)),
  run(input) {
    const said: string[] = [];
    const log = { log: (...args: unknown[]) => void said.push(JSON.stringify(args)) };
    const path = scratch.write('secret', input);
    let texts: readonly string[] = [];
    try {
      const env = securedEnvironment({ clusterSecretFile: path }, { ...memoryEnvironment(), log });
      texts = env.secrets?.reveal() ?? [];
      said.push(inspect(env.secrets), JSON.stringify(env.secrets), String(env.secrets));
      check(isUtf8(input), 'bytes that are no text as a secret: others would be the same');
      check(texts.length >= 1 && texts.length <= SECRETS_MAX_COUNT, `${texts.length} secrets`);
    } catch (error) {
      if (!(error instanceof ConfigError)) throw error;
      said.push(error.message);
    }
    const given = input
      .toString()
      .split('\n')
      .map((line) => line.trim())
      .filter((line) => line !== '');
    check(
      texts.length === 0 || isDeepStrictEqual([...new Set(given)], [...texts]),
      'other secrets than are in the file',
    );
    for (const text of texts) check(text.length <= SECRET_MAX_CHARACTERS, 'too long a secret');
    checkHidden(given, said, path);
  },
  async close() {
    scratch.remove();
  },
};

const SEPARATOR = '\x1e';
/** Within the validity of the seeds. */
const WALL_MS = Date.UTC(2030, 0, 1);

/** The three files, one behind the other. */
export const tlsFiles: Fuzzer = {
  name: 'tls-files',
  what: 'certificates and keys for TLS: usable, or refused with the key of the configuration that is wrong',
  form: 'bytes',
  inputMaxBytes: 4096,
  tokens: [
    SEPARATOR,
    '-----BEGIN CERTIFICATE-----\n',
    '-----END CERTIFICATE-----\n',
    '-----BEGIN PRIVATE KEY-----\n',
    'EC ',
    '\n',
    '=',
    KEY,
    CERT,
    CA,
  ].map((text) => Buffer.from(text)),
  seeds: () =>
    [
      [CERT, KEY, CA],
      [CA, KEY, CERT],
      [CERT + CA, KEY, CA + CERT],
      ['', '', ''],
    ].map((files) => Buffer.from(files.join(SEPARATOR))),
  run(input) {
    const texts = input
      .toString('latin1')
      .split(SEPARATOR)
      .map((text) => Buffer.from(text, 'latin1').toString());
    const [cert = '', key = '', ca = ''] = texts;
    const [certFile, keyFile, caFile] = [cert, key, ca].map((text, i) =>
      scratch.write(`${i}.pem`, Buffer.from(text)),
    ) as [string, string, string];
    const said: string[] = [];
    try {
      const identity = readTlsIdentity({ certFile, keyFile, caFile }, { files: systemFiles, wallMs: WALL_MS });
      said.push(inspect(identity), JSON.stringify({ identity }));
      const { crl: _crl, names: _names, ...read } = identity.reveal();
      check(isDeepStrictEqual(read, { cert, key, ca }), 'other texts than are in the files');
      for (const text of [cert, ca]) check(isValid(new X509Certificate(text)), 'a certificate that is not valid now');
    } catch (error) {
      if (!(error instanceof ConfigError)) throw error;
      check(/tls_(cert|key|ca)_file/.test(error.message), 'refused without the key of the configuration');
      said.push(error.message);
    }
    checkHidden(key.split(/[\r\n]/), said, join(scratch.folder, '0.pem'));
  },
  async close() {
    scratch.remove();
  },
};

function isValid({ validFrom, validTo }: X509Certificate): boolean {
  return Date.parse(validFrom) <= WALL_MS && WALL_MS <= Date.parse(validTo);
}

/** What is not in a message with no secret in it either. */
function checkHidden(secrets: readonly string[], said: readonly string[], path: string): void {
  const harmless = `${path} configuration key cluster_secret_file tls_cert_file tls_key_file tls_ca_file [secret] -----BEGIN PRIVATE KEY-----`;
  for (const secret of secrets) {
    if (secret.length < SECRET_MIN_CHARACTERS || harmless.includes(secret)) continue;
    check(!said.some((text) => text.includes(secret)), 'a secret in a message');
  }
}
