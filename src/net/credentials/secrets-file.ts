import { isUtf8 } from 'node:buffer';
import { ClusterSecrets } from '../../base/environment/cluster-secrets.js';
import type { Files } from '../../base/environment/files.js';
import { SECRET_MAX_CHARACTERS, SECRETS_MAX_COUNT } from '../../base/limits.js';
import { fileFault, readNamedFile, readNamedFileAgain } from '../../base/settings/named-file.js';

const KEY = 'cluster_secret_file';

/**
 * Reads the secrets from a file of one or two lines. Throws `ConfigError`, which names the key and the path, never the
 * content.
 */
export function readSecretsFile(path: string, files: Files): ClusterSecrets {
  return secretsIn(path, readNamedFile(KEY, path, files));
}

/** Reads the file while the node runs. Rejects as {@link readSecretsFile} throws. */
export async function readSecretsFileAgain(path: string, files: Files): Promise<ClusterSecrets> {
  return secretsIn(path, await readNamedFileAgain(KEY, path, files));
}

function secretsIn(path: string, bytes: Buffer): ClusterSecrets {
  // Replacement characters would turn different bytes into the same secret. A file that a loss of power has left full
  // of zeros is a secret that everybody knows.
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
