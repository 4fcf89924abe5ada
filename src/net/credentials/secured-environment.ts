import { isUtf8 } from 'node:buffer';
import { CLUSTER_SECRET_ALLOWED, ClusterSecrets, type TlsIdentity } from '../../base/environment/credentials.js';
import type { Environment } from '../../base/environment/environment.js';
import type { Files } from '../../base/environment/files.js';
import { ConfigError } from '../../base/errors.js';
import { SECRET_ADVISED_CHARACTERS, SECRET_MAX_CHARACTERS, SECRETS_MAX_COUNT } from '../../base/limits.js';
import { fileFault, readNamedFile, readNamedFileAgain, warnIfReadable } from '../../base/settings/named-file.js';
import { AuthFailures } from '../auth-failures.js';
import { readTlsIdentity, type TlsFiles } from './tls-files.js';

const KEY = 'cluster_secret_file';

/**
 * Reads the secrets from a file of one or two lines. Throws `ConfigError`, which names the key and the path, but never
 * the content.
 */
export function readSecretsFile(path: string, files: Files): ClusterSecrets {
  return secretsIn(path, readNamedFile(KEY, path, files));
}

/** Reads the file while the node runs. Rejects as {@link readSecretsFile} throws. */
export async function readSecretsFileAgain(path: string, files: Files): Promise<ClusterSecrets> {
  return secretsIn(path, await readNamedFileAgain(KEY, path, files));
}

function secretsIn(path: string, bytes: Buffer): ClusterSecrets {
  // Replacement characters would turn different bytes into the same secret. After a power loss a file may be full of
  // zeros, and everyone knows that secret.
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

/** The fields of a configuration that determine who may talk to a node; a `MeshCacheConfig` has them all. */
export interface SecurityConfig {
  /** Parsed secrets, or the text or texts from the configuration. */
  readonly clusterSecret?: ClusterSecrets | string | readonly string[] | undefined;
  readonly clusterSecretFile?: string | undefined;
  readonly tlsCertFile?: string | undefined;
  readonly tlsKeyFile?: string | undefined;
  readonly tlsCaFile?: string | undefined;
  readonly tlsCrlFile?: string | undefined;
  readonly tlsNames?: readonly string[];
}

/**
 * Returns `env` with the secrets and the TLS network that `config` asks for. Components created with it talk only to
 * peers that have them. Reads the files. Throws {@link ConfigError}, which names the key of a file that cannot be used.
 */
export function securedEnvironment(config: SecurityConfig, env: Environment): Environment {
  checkSecurity(config);
  const secrets = secretsOf(config, env) ?? env.secrets;
  const tls = tlsOf(config, env);
  if (tls === undefined) return secrets === env.secrets ? env : { ...env, secrets };
  if (env.network.overTls === undefined)
    throw new ConfigError('configuration key "tls_cert_file": the network of this environment has no TLS');
  const failures = new AuthFailures('rpc', env, 'control');
  return { ...env, secrets, tls, network: env.network.overTls(tls, (address) => failures.record('tls', address)) };
}

/** Throws {@link ConfigError} if keys exclude each other or if one is missing. Reads no files. */
export function checkSecurity(config: SecurityConfig): void {
  if (config.clusterSecret !== undefined && config.clusterSecretFile !== undefined) {
    throw new ConfigError('configuration keys "cluster_secret" and "cluster_secret_file": give one of them, not both');
  }
  const files = { tls_cert_file: config.tlsCertFile, tls_key_file: config.tlsKeyFile, tls_ca_file: config.tlsCaFile };
  const missing = Object.entries(files).filter(([, path]) => path === undefined);
  const hasMore = config.tlsCrlFile !== undefined || (config.tlsNames ?? []).length > 0;
  if (missing.length === 0 || (missing.length === Object.keys(files).length && !hasMore)) return;
  const names = missing.map(([key]) => `"${key}"`).join(', ');
  throw new ConfigError(`TLS needs all of ${Object.keys(files).join(', ')}: configuration keys missing: ${names}`);
}

function secretsOf(
  { clusterSecret, clusterSecretFile }: SecurityConfig,
  { files, log }: Environment,
): ClusterSecrets | undefined {
  let secrets = parsedSecrets(clusterSecret);
  if (clusterSecretFile !== undefined) {
    secrets = readSecretsFile(clusterSecretFile, files);
    warnIfReadable('cluster_secret_file', clusterSecretFile, { files, log });
  }
  if (secrets !== undefined && secrets.shortestCharacters < SECRET_ADVISED_CHARACTERS) {
    log.log('warn', 'cluster_secret is too short and might be guessed; use random text', {
      advised_characters: SECRET_ADVISED_CHARACTERS,
    });
  }
  return secrets;
}

function parsedSecrets(given: SecurityConfig['clusterSecret']): ClusterSecrets | undefined {
  if (given === undefined || given instanceof ClusterSecrets) return given;
  const secrets = ClusterSecrets.of(typeof given === 'string' ? [given] : given);
  if (secrets !== undefined) return secrets;
  throw new ConfigError(
    `configuration key "cluster_secret": got a value that is not shown, allowed is ${CLUSTER_SECRET_ALLOWED}`,
  );
}

function tlsOf(config: SecurityConfig, env: Environment): TlsIdentity | undefined {
  const paths = tlsFilesOf(config);
  if (paths === undefined) return undefined;
  return readTlsIdentity(paths, { files: env.files, wallMs: env.clock.wallMs(), names: config.tlsNames ?? [] });
}

/** Returns the file paths of a configuration that asks for TLS; undefined if it does not. */
export function tlsFilesOf({ tlsCertFile, tlsKeyFile, tlsCaFile, tlsCrlFile }: SecurityConfig): TlsFiles | undefined {
  if (tlsCertFile === undefined || tlsKeyFile === undefined || tlsCaFile === undefined) return undefined;
  return { certFile: tlsCertFile, keyFile: tlsKeyFile, caFile: tlsCaFile, crlFile: tlsCrlFile };
}
