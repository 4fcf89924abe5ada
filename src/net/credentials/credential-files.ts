import { isDeepStrictEqual } from 'node:util';
import type { Renewable, TlsIdentity } from '../../base/environment/credentials.js';
import type { Environment } from '../../base/environment/environment.js';
import type { AuthFailurePlane } from '../auth-failures.js';
import type { Users } from '../users.js';
import { readUsersFileAgain } from '../users-file.js';
import { readSecretsFileAgain, type SecurityConfig, tlsFilesOf } from './secured-environment.js';
import { checkTlsTexts, expiryMsOf, readTlsTexts, type TlsFiles } from './tls-files.js';

/** Milliseconds between checks of the files. */
const CHECK_INTERVAL_MS = 5000;
const MS_PER_S = 1000;
/** Remaining time of a certificate below which the log warns that it ends. */
const ENDS_SOON_MS = 7 * 86_400_000;

/** The fields of a configuration that name the files. */
interface CredentialPaths extends SecurityConfig {
  readonly usersFile?: string | undefined;
}

/** Result of checking the files. */
type Outcome = 'same' | 'renewed';

/** The files of one kind of credentials, which may be replaced while they are in use. */
interface Credential {
  /** Contents of the files, for the log. */
  readonly kind: 'secret' | 'certificate' | 'users';
  /**
   * Checks the files. Changed contents are in use when this resolves. Rejects, and changes nothing, if the files cannot
   * be used.
   */
  look(): Promise<Outcome>;
  /** Returns when the first of the credentials in use expires, in milliseconds of the wall clock. Default: never. */
  readonly endsMs?: () => number;
}

/**
 * Re-reads the files of secrets, certificates and users while they are in use. It compares contents, because links and
 * folders on the path may be swapped, as Kubernetes does. Usable changes replace the current credentials for new
 * connections; changes of users also apply to open connections. Unusable contents are logged, and the current
 * credentials stay in use.
 */
export class CredentialFiles {
  readonly #plane: AuthFailurePlane;
  readonly #credentials: readonly Credential[];
  readonly #env: Pick<Environment, 'clock' | 'log' | 'metrics' | 'audit'>;
  /** Why files could not be used at the last check, by kind. */
  readonly #problems = new Map<string, string>();
  /** Last log message about the end of a certificate. */
  #endSaid = '';
  #cancel: (() => void) | undefined;

  /** `plane` is where the credentials are used. */
  constructor(
    plane: AuthFailurePlane,
    credentials: readonly Credential[],
    env: Pick<Environment, 'clock' | 'log' | 'metrics' | 'audit'>,
  ) {
    this.#plane = plane;
    this.#credentials = credentials;
    this.#env = env;
  }

  /** Checks the files periodically until {@link stop}. */
  start(): void {
    const labels = { plane: this.#plane };
    this.#env.metrics.setGaugeProvider('meshcache_credential_files_failing', () => this.#problems.size, labels);
    if (this.#credentials.length > 0) this.#schedule();
  }

  stop(): void {
    this.#cancel?.();
    this.#cancel = undefined;
  }

  /** Checks the files now. Resolves when changed contents are in use. */
  async check(): Promise<void> {
    for (const credential of this.#credentials) {
      await this.#look(credential);
      this.#tellEnd(credential.endsMs?.() ?? Number.POSITIVE_INFINITY);
    }
  }

  /** Logs once that a certificate ends soon, and once that it has ended. */
  #tellEnd(endsMs: number): void {
    const { clock, log } = this.#env;
    const leftMs = endsMs - clock.wallMs();
    if (leftMs > ENDS_SOON_MS) return;
    const ends = new Date(endsMs).toISOString();
    const text = leftMs > 0 ? 'a certificate ends soon' : 'a certificate has ended: new connections are refused';
    if (this.#endSaid === `${text} ${ends}`) return;
    this.#endSaid = `${text} ${ends}`;
    log.log('warn', text, { plane: this.#plane, ends });
  }

  #schedule(): void {
    this.#cancel = this.#env.clock.after(CHECK_INTERVAL_MS, () => {
      void this.check().then(() => {
        if (this.#cancel !== undefined) this.#schedule();
      });
    });
  }

  async #look(credential: Credential): Promise<void> {
    const { kind } = credential;
    const { log, audit } = this.#env;
    const plane = this.#plane;
    try {
      const outcome = await credential.look();
      this.#problems.delete(kind);
      if (outcome !== 'renewed') return;
      log.log('info', 'new credentials are in use', { plane, kind });
      audit?.record({ action: 'renew', door: 'node', outcome: 'done', reason: kind });
    } catch (error) {
      const reason = (error as Error).message;
      const before = this.#problems.get(kind);
      this.#problems.set(kind, reason);
      // A problem that lasts is logged only once.
      if (before === reason) return;
      log.log('warn', 'credentials cannot be read anew; the former ones stay in use', { plane, kind, reason });
      audit?.record({ action: 'renew', door: 'node', outcome: 'failed', reason: kind, detail: reason });
    }
  }
}

/**
 * Returns the files that make a node a member of its cluster, and its `users` file. `env` is the result of
 * `securedEnvironment` for `config`.
 */
export function memberCredentials(config: CredentialPaths, env: Environment, users?: Users): CredentialFiles {
  const paths = tlsFilesOf(config);
  const secret = secretFile(config, env);
  const tls = env.tls === undefined || paths === undefined ? undefined : certificateFiles(paths, env.tls, env);
  tellExpiry('rpc', env.tls, env);
  return new CredentialFiles(
    'rpc',
    [secret, tls, userFile(config, users, env)].flatMap((each) => each ?? []),
    env,
  );
}

/** Returns the files of a certificate that is in use as `held`. */
export function certificateFiles(
  paths: TlsFiles,
  held: TlsIdentity,
  { files, clock }: Pick<Environment, 'files' | 'clock'>,
): Credential {
  const credential = renewing('certificate', held, {
    read: async () => ({ ...(await readTlsTexts(paths, files)), names: held.reveal().names }),
    check: (found) => checkTlsTexts(paths, found, clock.wallMs()),
  });
  return { ...credential, endsMs: () => expiryMsOf(held.reveal()) };
}

/** Returns a problem with the certificates between nodes that an operator must know; undefined if they are valid. */
export function certificateTrouble({ tls, clock }: Pick<Environment, 'tls' | 'clock'>): string | undefined {
  const endMs = tls === undefined ? Number.POSITIVE_INFINITY : expiryMsOf(tls.reveal());
  if (endMs > clock.wallMs()) return undefined;
  const ended = new Date(endMs).toISOString();
  return `a certificate in tls_cert_file or tls_ca_file has ended on ${ended}: new connections with other nodes are refused`;
}

/** Reports in the metrics when the certificate of this plane expires. */
export function tellExpiry(
  plane: AuthFailurePlane,
  held: TlsIdentity | undefined,
  { metrics }: Pick<Environment, 'metrics'>,
): void {
  const expiryS = (): number => (held === undefined ? Number.POSITIVE_INFINITY : expiryMsOf(held.reveal()) / MS_PER_S);
  metrics.setGaugeProvider('meshcache_tls_certificate_expiry_seconds', expiryS, { plane });
}

function secretFile({ clusterSecretFile: path }: SecurityConfig, env: Environment): Credential | undefined {
  const { secrets: held, files } = env;
  if (path === undefined || held === undefined) return undefined;
  return renewing('secret', held, { read: async () => (await readSecretsFileAgain(path, files)).reveal() });
}

function userFile(
  { usersFile: path }: CredentialPaths,
  held: Users | undefined,
  { files }: Environment,
): Credential | undefined {
  if (path === undefined || held === undefined) return undefined;
  return renewing('users', held, { read: () => readUsersFileAgain(path, files) });
}

/** Returns credentials that replace those in `held` if `read` finds different ones and `check` does not throw. */
function renewing<T>(
  kind: Credential['kind'],
  held: Renewable<T>,
  { read, check }: { readonly read: () => Promise<T>; readonly check?: (found: T) => void },
): Credential {
  return {
    kind,
    async look() {
      const found = await read();
      if (isDeepStrictEqual(found, held.reveal())) return 'same';
      check?.(found);
      held.renew(found);
      return 'renewed';
    },
  };
}
