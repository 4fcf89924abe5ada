import type { ClusterSecrets } from '../base/environment/credentials.js';
import type { RandomSource } from '../base/environment/random.js';
import { ProtocolError } from '../base/errors.js';
import {
  type AuthPlane,
  CHALLENGE_BYTES,
  ClientHandshake,
  PROOF_BYTES,
  PROOFS_BYTES,
  ServerHandshake,
  type SessionKeys,
} from './auth.js';
import type { AuthFailureReason } from './auth-failures.js';

/**
 * The opening of a connection between two nodes, the same on the control plane and on the TCP data plane, as one state
 * machine per side. The machines own no socket: their users pass them the parts that arrive, and send what the events
 * contain.
 *
 *     client                  server
 *     hello [challenge]  ------->
 *                        <-------  hello [challenge]     on the data plane without waiting for the client's
 *     [proofs]           ------->                        what is in brackets: only if both sides want authentication
 *                        <-------  [proof]
 *
 * After successful proofs every frame carries tags, unless the connection uses TLS, which protects frames itself.
 */

/** The hello of one plane: the first bytes that either side sends. */
export interface HelloFormat {
  readonly plane: AuthPlane;
  /** Length of a hello. */
  readonly bytes: number;
  encode(options: { readonly authentication: boolean }): Buffer;
  /**
   * Whether the hello that starts with `start` asks for authentication; undefined if more of it is needed to tell.
   * Throws {@link ProtocolError} if it cannot become a hello of this version.
   */
  wantsAuthentication(start: Buffer): boolean | undefined;
}

/** Events of an opening, which its connection acts on. */
export interface OpeningEvents {
  send(bytes: Buffer): void;
  /**
   * Called when the opening has succeeded: the peer has said hello, and has authenticated itself if secrets are set.
   * With `keys`, every later frame carries tags under them.
   */
  opened(peerHello: Buffer, keys: SessionKeys | undefined): void;
  /**
   * Called when the two sides do not share a secret. The connection sends `farewell`, which tells the peer why, and
   * ends.
   */
  refused(reason: AuthFailureReason, farewell?: Buffer): void;
  /** Called when the peer's hello is of another protocol or version. The connection ends. */
  foreign(error: ProtocolError): void;
}

/** The fields of an `Environment` that an opening needs. Without secrets there is no authentication. */
interface OpeningEnvironment {
  readonly random: RandomSource;
  readonly secrets?: ClusterSecrets | undefined;
}

/** The connection of an opening. */
export interface OpeningSubject {
  readonly env: OpeningEnvironment;
  /**
   * The server that the client means to reach, or that this server is: the purpose of the connection, and the address
   * that the server's node advertises. A server proves itself only to clients that mean to reach it, and trusts no
   * others.
   */
  readonly target: string;
  /** Whether the connection uses TLS; then frames carry no tags. */
  readonly isEncrypted: () => boolean;
}

/** The connecting side of an opening. */
export class ClientOpening {
  readonly #format: HelloFormat;
  readonly #events: OpeningEvents;
  readonly #hello: Buffer;
  /** The client's handshake; undefined if this side has no secrets. */
  readonly #handshake: ClientHandshake | undefined;
  readonly #isEncrypted: () => boolean;
  #serverHello: Buffer = Buffer.alloc(0);
  /** The next part to receive. */
  #awaited: 'hello' | 'challenge' | 'proof' | 'nothing' = 'hello';

  constructor(format: HelloFormat, { env, target, isEncrypted }: OpeningSubject, events: OpeningEvents) {
    const { secrets, random } = env;
    this.#format = format;
    this.#events = events;
    this.#isEncrypted = isEncrypted;
    this.#hello = format.encode({ authentication: secrets !== undefined });
    if (secrets === undefined) return;
    this.#handshake = new ClientHandshake({ plane: format.plane, secrets, random, hello: this.#hello, target });
  }

  /** Sends this side's hello. Must be called as soon as the connection can be written to. */
  greet(): void {
    this.#events.send(this.#handshake?.greeting ?? this.#hello);
  }

  /**
   * Whether the proofs have been sent and not answered yet. A server that rejects them ends the connection without an
   * answer.
   */
  get awaitsProof(): boolean {
    return this.#awaited === 'proof';
  }

  /**
   * Processes the next part, which is not kept; the first part is a hello. Returns the length of the part after it, or
   * 0 if the opening is over.
   */
  take(part: Buffer): number {
    switch (this.#awaited) {
      case 'hello':
        return this.#takeHello(part);
      case 'challenge':
        return this.#takeChallenge(part);
      case 'proof':
        this.#takeProof(part);
        return 0;
      case 'nothing':
        return 0;
    }
  }

  #takeChallenge(challenge: Buffer): number {
    const proofs = (this.#handshake as ClientHandshake).prove(Buffer.concat([this.#serverHello, challenge]));
    if (proofs === undefined) {
      this.#awaited = 'nothing';
      this.#events.refused('misdirected');
      return 0;
    }
    this.#awaited = 'proof';
    this.#events.send(proofs);
    return PROOF_BYTES;
  }

  #takeProof(proof: Buffer): void {
    this.#awaited = 'nothing';
    const keys = (this.#handshake as ClientHandshake).answered(proof);
    if (keys === undefined) this.#events.refused('wrong');
    else this.#events.opened(this.#serverHello, this.#isEncrypted() ? undefined : keys);
  }

  #takeHello(hello: Buffer): number {
    this.#awaited = 'nothing';
    const isWanted = this.#handshake !== undefined;
    const authentication = inspected(this.#format, hello, this.#events);
    if (authentication === 'foreign') return 0;
    this.#serverHello = Buffer.from(hello);
    if (authentication !== isWanted) {
      this.#events.refused(isWanted ? 'missing' : 'unexpected');
    } else if (isWanted) {
      this.#awaited = 'challenge';
      return CHALLENGE_BYTES;
    } else {
      this.#events.opened(this.#serverHello, undefined);
    }
    return 0;
  }
}

/** The accepting side of an opening. */
export class ServerOpening {
  readonly #format: HelloFormat;
  readonly #subject: OpeningSubject;
  readonly #events: OpeningEvents;
  readonly #hello: Buffer;
  #hasGreeted = false;
  /** Created with the server's greeting; undefined before, and if this side has no secrets. */
  #handshake: ServerHandshake | undefined;
  #clientGreeting: Buffer = Buffer.alloc(0);
  /** The next part to receive. */
  #awaited: 'hello' | 'challenge' | 'proofs' | 'nothing' = 'hello';
  #isOpen = false;

  constructor(format: HelloFormat, subject: OpeningSubject, events: OpeningEvents) {
    this.#format = format;
    this.#subject = subject;
    this.#events = events;
    this.#hello = format.encode({ authentication: subject.env.secrets !== undefined });
  }

  /** Whether the opening has succeeded and the connection may be used. */
  get isOpen(): boolean {
    return this.#isOpen;
  }

  /** Whether the client's hello has arrived but its challenge has not. */
  get isWithinGreeting(): boolean {
    return this.#awaited === 'challenge';
  }

  /** Length of the next part; 0 once the opening has succeeded or failed. */
  get nextBytes(): number {
    const bytes = { hello: this.#format.bytes, challenge: CHALLENGE_BYTES, proofs: PROOFS_BYTES, nothing: 0 };
    return bytes[this.#awaited];
  }

  /**
   * Sends this side's hello at once, on a plane whose servers do not wait for the client's. Otherwise {@link take}
   * sends it as the answer.
   */
  greet(): void {
    if (this.#hasGreeted) return;
    this.#hasGreeted = true;
    const { env, target } = this.#subject;
    const { secrets, random } = env;
    if (secrets !== undefined) {
      const { plane } = this.#format;
      this.#handshake = new ServerHandshake({ plane, secrets, random, hello: this.#hello, target });
    }
    this.#events.send(this.#handshake?.greeting ?? this.#hello);
  }

  /** Checks the beginning of an incomplete part. A wrong hello ends the opening at its first wrong byte. */
  examine(start: Buffer): void {
    if (this.#awaited === 'hello') this.#authenticationOf(start);
  }

  /**
   * Processes the next part, {@link nextBytes} long, which is not kept. Returns the length of the part after it, or 0
   * if the opening is over.
   */
  take(part: Buffer): number {
    switch (this.#awaited) {
      case 'hello':
        this.#takeHello(part);
        break;
      case 'challenge':
        this.#awaited = 'proofs';
        this.#clientGreeting = Buffer.concat([this.#clientGreeting, part]);
        this.greet();
        break;
      case 'proofs':
        this.#takeProofs(part);
        break;
      case 'nothing':
        break;
    }
    return this.nextBytes;
  }

  #takeHello(hello: Buffer): void {
    const authentication = this.#authenticationOf(hello);
    if (authentication === undefined) return;
    this.#clientGreeting = Buffer.from(hello);
    if (authentication) {
      this.#awaited = 'challenge';
    } else {
      this.greet();
      this.#open(undefined);
    }
  }

  #takeProofs(proofs: Buffer): void {
    this.#awaited = 'nothing';
    const answer = (this.#handshake as ServerHandshake).answer(this.#clientGreeting, proofs);
    if (typeof answer === 'string') {
      this.#events.refused(answer);
      return;
    }
    this.#events.send(answer.proof);
    this.#open(this.#subject.isEncrypted() ? undefined : answer.keys);
  }

  #open(keys: SessionKeys | undefined): void {
    this.#awaited = 'nothing';
    this.#isOpen = true;
    this.#events.opened(this.#clientGreeting.subarray(0, this.#format.bytes), keys);
  }

  /**
   * Whether both sides want authentication. Undefined if that is unknown yet, or if they disagree and the opening has
   * failed.
   */
  #authenticationOf(start: Buffer): boolean | undefined {
    const isWanted = this.#subject.env.secrets !== undefined;
    const authentication = inspected(this.#format, start, this.#events);
    if (authentication === undefined || authentication === isWanted) return authentication;
    this.#awaited = 'nothing';
    if (authentication === 'foreign') return undefined;
    this.#events.refused(isWanted ? 'missing' : 'unexpected', this.#hasGreeted ? undefined : this.#hello);
    return undefined;
  }
}

/**
 * Whether a hello asks for authentication. Returns `foreign` if it is not a hello, which has been reported to `events`.
 */
function inspected(format: HelloFormat, start: Buffer, events: OpeningEvents): boolean | undefined | 'foreign' {
  try {
    return format.wantsAuthentication(start);
  } catch (error) {
    if (!(error instanceof ProtocolError)) throw error;
    events.foreign(error);
    return 'foreign';
  }
}
