import { isDeepStrictEqual } from 'node:util';
import type { Environment } from '../../base/environment/environment.js';
import type { Users } from '../users/users.js';
import { readUsersFileAgain } from '../users/users-file.js';
import { secretsIn } from './secrets-file.js';
import { type SecurityConfig, tlsFilesOf } from './secured-environment.js';
import { checkTlsTexts, expiryMsOf, readTlsTexts } from './tls-files.js';

/** Milliseconds between two looks at the files. */
const CHECK_INTERVAL_MS = 5000;
const MS_PER_S = 1000;

/** The fields of a configuration that name the files. */
export interface CredentialPaths extends SecurityConfig {
  readonly usersFile?: string | undefined;
}

/** What a look at a file found. */
type Outcome = 'same' | 'renewed';

/**
 * Reads the files of secrets, certificates and users anew while a node runs, by their contents: links and folders may be swapped below them, as
 * Kubernetes does it. What has changed and can be used takes the place of the former in `env.secrets` and `env.tls`, for connections that are made from
 * then on, and among the users, for open connections as well. What cannot be used is logged, and the former stays.
 */
export class CredentialFiles {
  readonly #config: CredentialPaths;
  readonly #env: Environment;
  readonly #users: Users | undefined;
  /** Why files could not be used when they were last looked at, by the kind of what is in them. */
  readonly #problems = new Map<string, string>();
  #cancel: (() => void) | undefined;

  /** `env` is what `securedEnvironment` made of `config`, and `users` what was read from its file. */
  constructor(config: CredentialPaths, env: Environment, users?: Users) {
    this.#config = config;
    this.#env = env;
    this.#users = users;
  }

  /** Looks at the files from time to time until {@link stop}. */
  start(): void {
    const { metrics, tls } = this.#env;
    metrics.setGaugeProvider('meshcache_tls_certificate_expiry_seconds', () =>
      tls === undefined ? Number.POSITIVE_INFINITY : expiryMsOf(tls.reveal()) / MS_PER_S,
    );
    metrics.setGaugeProvider('meshcache_credential_files_failing', () => this.#problems.size);
    const { clusterSecretFile, usersFile } = this.#config;
    if (clusterSecretFile !== undefined || usersFile !== undefined || tls !== undefined) this.#schedule();
  }

  stop(): void {
    this.#cancel?.();
    this.#cancel = undefined;
  }

  /** Looks at the files now. Resolves when what has changed is in use. */
  async check(): Promise<void> {
    await this.#look('secret', () => this.#checkSecrets());
    await this.#look('certificate', () => this.#checkTls());
    await this.#look('users', () => this.#checkUsers());
  }

  #schedule(): void {
    this.#cancel = this.#env.clock.after(CHECK_INTERVAL_MS, () => {
      void this.check().then(() => {
        if (this.#cancel !== undefined) this.#schedule();
      });
    });
  }

  async #look(kind: string, check: () => Promise<Outcome>): Promise<void> {
    const { log, audit } = this.#env;
    try {
      const outcome = await check();
      this.#problems.delete(kind);
      if (outcome !== 'renewed') return;
      log.log('info', 'new credentials are in use', { kind });
      audit?.record({ action: 'renew', door: 'node', outcome: 'done', reason: kind });
    } catch (error) {
      const reason = (error as Error).message;
      const before = this.#problems.get(kind);
      this.#problems.set(kind, reason);
      // Files that belong together are replaced one after the other: nothing is wrong unless it lasts.
      if (before === reason) return;
      log.log('warn', 'credentials cannot be read anew; the former ones stay in use', { kind, reason });
      audit?.record({ action: 'renew', door: 'node', outcome: 'failed', reason: kind, detail: reason });
    }
  }

  async #checkSecrets(): Promise<Outcome> {
    const { clusterSecretFile: path } = this.#config;
    const held = this.#env.secrets;
    if (path === undefined || held === undefined) return 'same';
    const found = secretsIn(path, await this.#env.files.readFile(path)).reveal();
    if (isDeepStrictEqual(found, held.reveal())) return 'same';
    held.renew(found);
    return 'renewed';
  }

  async #checkTls(): Promise<Outcome> {
    const paths = tlsFilesOf(this.#config);
    const { tls: held, files, clock } = this.#env;
    if (held === undefined || paths === undefined) return 'same';
    const found = { ...(await readTlsTexts(paths, files)), names: this.#config.tlsNames ?? [] };
    if (isDeepStrictEqual(found, held.reveal())) return 'same';
    checkTlsTexts(paths, found, clock.wallMs());
    held.renew(found);
    return 'renewed';
  }

  async #checkUsers(): Promise<Outcome> {
    const { usersFile: path } = this.#config;
    const held = this.#users;
    if (path === undefined || held === undefined) return 'same';
    const found = await readUsersFileAgain(path, this.#env.files);
    if (isDeepStrictEqual(found, held.reveal())) return 'same';
    held.renew(found);
    return 'renewed';
  }
}
