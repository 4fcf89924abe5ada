import type { TlsIdentity } from '../../base/environment/credentials.js';
import type { Environment } from '../../base/environment/environment.js';
import type { Connection, ListenOptions, Network, Server } from '../../base/environment/network.js';
import { ConfigError } from '../../base/errors.js';
import { type DoorTlsSettings, doorFilesOf, type TlsDoor } from '../../base/settings/door-settings.js';
import { AuthFailures } from '../auth-failures.js';
import { ConnectionLimits, turnAway } from '../connection-limits.js';
import { CredentialFiles, certificateFiles, tellExpiry } from './credential-files.js';
import { readTlsIdentity, type TlsFiles } from './tls-files.js';

/**
 * Codes of handshakes that ended without a failure, because the client has gone, such as a probe whether the port is
 * open.
 */
const GONE_CODES: ReadonlySet<string> = new Set(['ECONNRESET', 'EPIPE']);

const TOO_MANY = 'too many connections from this address that have not authenticated themselves; refused for a moment';

/**
 * TLS at a door. Its certificate is re-read while the door is open. Unauthenticated clients are limited: in connections
 * per address, and in the number and time of handshakes.
 */
export class DoorTls {
  /** Whether clients must present a certificate. */
  readonly wantsCertificates: boolean;
  readonly #door: TlsDoor;
  readonly #network: Network;
  readonly #files: CredentialFiles;
  readonly #limits: ConnectionLimits;
  readonly #failures: AuthFailures;

  /**
   * Reads the certificate of a door; undefined if the door does not use TLS. Throws {@link ConfigError}, which names
   * the key of a file that cannot be used.
   */
  static of(door: TlsDoor, config: DoorTlsSettings, env: Environment): DoorTls | undefined {
    const { certFile, keyFile, caFile } = doorFilesOf(door, config);
    if (certFile === undefined || keyFile === undefined) return undefined;
    const paths = { keyPrefix: `${door}_tls_`, certFile, keyFile, caFile };
    const identity = readTlsIdentity(paths, { files: env.files, wallMs: env.clock.wallMs() });
    return new DoorTls(door, identity, { paths, env });
  }

  private constructor(
    door: TlsDoor,
    identity: TlsIdentity,
    { paths, env }: { readonly paths: TlsFiles; readonly env: Environment },
  ) {
    const { network } = env;
    if (network.overTls === undefined)
      throw new ConfigError(`configuration key "${door}_tls_cert_file": the network of this environment has no TLS`);
    this.#door = door;
    this.wantsCertificates = paths.caFile !== undefined;
    this.#failures = new AuthFailures(door, env);
    this.#limits = new ConnectionLimits(env.clock);
    this.#network = network.overTls(identity, (address, code) => this.#refused(address, code), {
      // Clients are third-party programs, some of them old.
      minVersion: 'TLSv1.2',
      // A health probe has no certificate, but may ask for the health.
      admitsStrangers: door === 'metrics',
    });
    this.#files = new CredentialFiles(door, [certificateFiles(paths, identity, env)], env);
    tellExpiry(door, identity, env);
    this.#files.start();
  }

  /** Creates a server as {@link Network.createServer} does, whose connections have completed their handshake. */
  createServer(options: Omit<ListenOptions, 'admit'>, onConnection: (connection: Connection) => void): Server {
    const accepted = (connection: Connection): void => {
      if (connection.authorized === true) this.proved(connection.remoteAddress ?? '');
      onConnection(connection);
    };
    return this.#network.createServer({ ...options, admit: (socket) => this.#admits(socket) }, accepted);
  }

  /** Whether a connection's client has presented a certificate, or need not. If not, it is recorded as refused. */
  knows(socket: Connection): boolean {
    if (!this.wantsCertificates || socket.authorized === true) return true;
    this.#failures.record(
      'tls',
      socket.remoteAddress ?? '',
      handshakeFault('DID_NOT_RETURN_A_CERTIFICATE', this.#door),
    );
    return false;
  }

  /** Called when a client at `address` has authenticated itself: its connection is no longer limited. */
  proved(address: string): void {
    this.#limits.proved(address);
  }

  /** Stops re-reading the files. Idempotent. */
  close(): void {
    this.#files.stop();
  }

  /** Throws `InvariantError` unless the connection limits are consistent. */
  verify(): void {
    this.#limits.verify();
  }

  #admits(socket: Connection): boolean {
    const address = socket.remoteAddress ?? '';
    if (this.#limits.admit(address) === 'accept') return true;
    this.#failures.record('paused', address, TOO_MANY);
    turnAway(socket);
    return false;
  }

  #refused(address: string, code: string): void {
    if (!GONE_CODES.has(code)) this.#failures.record('tls', address, handshakeFault(code, this.#door));
  }
}

/** Explains why a handshake failed, and what to do. `code` is a code of OpenSSL or Node.js. */
function handshakeFault(code: string, door: TlsDoor): string {
  const option = door === 'resp' ? 'such as redis-cli --tls' : 'an address that begins with https://';
  if (/WRONG_VERSION_NUMBER|HTTP_REQUEST|PACKET_LENGTH_TOO_LONG|BAD_RECORD_TYPE|UNKNOWN_PROTOCOL/.test(code))
    return `the client speaks no TLS, and this port speaks nothing else; give the client its option for TLS, ${option}`;
  if (/DID_NOT_RETURN_A_CERTIFICATE/.test(code))
    return `the client shows no certificate, and ${door}_tls_ca_file wants one`;
  if (/ALERT.*(UNKNOWN_CA|CERTIFICATE)/.test(code))
    return `the client does not accept the certificate in ${door}_tls_cert_file (${code}); give it the authority that has signed it`;
  if (/CERT|ISSUER|SIGNATURE/.test(code))
    return `the client's certificate is not accepted (${code}); it must be valid and signed by ${door}_tls_ca_file`;
  return `the TLS handshake failed (${code})`;
}
