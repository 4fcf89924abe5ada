import { isUtf8 } from 'node:buffer';
import { ClusterSecrets } from '../../base/environment/cluster-secrets.js';
import type { Files } from '../../base/environment/files.js';
import { SECRET_MAX_CHARACTERS, SECRETS_MAX_COUNT } from '../../base/limits.js';
import { fileFault, readNamedFile, unreadable } from '../../base/settings/named-file.js';

const KEY = 'cluster_secret_file';

/** Permission bit that lets users outside the owner's group read the file. */
const READABLE_BY_OTHERS = 0o004;

/** Reads the secrets from a file of one or two lines. Throws `ConfigError`, which names the key and the path, never the content. */
export function readSecretsFile(
  path: string,
  files: Files,
): { readonly secrets: ClusterSecrets; readonly isReadableByOthers: boolean } {
  const bytes = readNamedFile(KEY, path, files);
  let mode: number;
  try {
    mode = files.statusSync(path).mode;
  } catch (cause) {
    throw unreadable(KEY, path, cause);
  }
  return { secrets: secretsIn(path, bytes), isReadableByOthers: (mode & READABLE_BY_OTHERS) !== 0 };
}

/** The secrets in the bytes of the file at `path`. Throws `ConfigError` as {@link readSecretsFile} does. */
export function secretsIn(path: string, bytes: Buffer): ClusterSecrets {
  // Replacement characters would turn different bytes into the same secret. A file that a loss of power has left full of zeros is a secret that everybody knows.
  if (!isUtf8(bytes) || bytes.includes(0))
    throw fileFault(KEY, path, 'is no text; allowed is UTF-8, such as the output of openssl rand -hex 32');
  const lines = bytes
    .toString()
    .split('\n')
    .filter((line) => line.trim() !== '');
  const secrets = ClusterSecrets.of(lines);
  if (secrets === undefined) {
    const allowed = `1 or ${SECRETS_MAX_COUNT} lines of 1 to ${SECRET_MAX_CHARACTERS} characters`;
    throw fileFault(KEY, path, `has ${lines.length} lines that are not empty, allowed are ${allowed}`);
  }
  return secrets;
}
