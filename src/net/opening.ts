import type { ClusterSecrets } from '../base/environment/cluster-secrets.js';
import type { RandomSource } from '../base/environment/random.js';
import { ProtocolError } from '../base/errors.js';
import { type AuthPlane, ClientHandshake, NONCE_BYTES, PROOF_BYTES, PROOFS_BYTES, ServerHandshake } from './auth.js';
import type { AuthFailureReason } from './auth-failures.js';

/**
 * The opening of a connection between two nodes, the same on the control plane and on the TCP data plane, as one state machine for
 * each side. They own no socket: their users hand them the parts that arrive, and send what the events say.
 *
 *     client                  server
 *     hello [nonce]  ------->
 *                    <-------  hello [nonce]     on the data plane without waiting for the client's
 *     [proofs]       ------->                    what is in brackets: only if both sides want authentication
 *                    <-------  [proof]
 */

/** The hello of one plane: the first bytes that either side sends. */
export interface HelloFormat {
  readonly plane: AuthPlane;
  /** Length of a hello. */
  readonly bytes: number;
  encode(options: { readonly authentication: boolean }): Buffer;
  /**
   * Whether the hello that starts with `start` wants authentication; undefined: that cannot be told before more of it has come. Throws
   * {@link ProtocolError} if it cannot become a hello of this version.
   */
  wantsAuthentication(start: Buffer): boolean | undefined;
}

/** Called by an opening; its connection acts on them. */
export interface OpeningEvents {
  send(bytes: Buffer): void;
  /** The opening has succeeded: the peer has said hello, and has authenticated itself if secrets are set. */
  opened(peerHello: Buffer): void;
  /** The two sides do not agree on a secret: the connection sends `farewell`, which tells the peer why, and ends. */
  refused(reason: AuthFailureReason, farewell?: Buffer): void;
  /** The peer's hello is of another protocol or version: the connection ends. */
  foreign(error: ProtocolError): void;
}

/** The fields of an `Environment` that an opening needs; without secrets there is no authentication. */
export interface OpeningEnvironment {
  readonly random: RandomSource;
  readonly secrets?: ClusterSecrets | undefined;
}

/** The connecting side of an opening. */
export class ClientOpening {
  readonly #format: HelloFormat;
  readonly #events: OpeningEvents;
  readonly #hello: Buffer;
  /** Undefined: this side has no secrets. */
  readonly #handshake: ClientHandshake | undefined;
  #serverHello: Buffer = Buffer.alloc(0);
  /** The part that comes next. */
  #awaited: 'hello' | 'nonce' | 'proof' | 'nothing' = 'hello';

  constructor(format: HelloFormat, { secrets, random }: OpeningEnvironment, events: OpeningEvents) {
    this.#format = format;
    this.#events = events;
    this.#hello = format.encode({ authentication: secrets !== undefined });
    if (secrets === undefined) return;
    this.#handshake = new ClientHandshake({ plane: format.plane, secrets, random, hello: this.#hello });
  }

  /** Sends this side's hello, as soon as the connection can be written to. */
  greet(): void {
    this.#events.send(this.#handshake?.greeting ?? this.#hello);
  }

  /** Whether the proofs are sent and not answered. A server that does not accept them ends the connection without an answer. */
  get awaitsProof(): boolean {
    return this.#awaited === 'proof';
  }

  /** Takes the next part, which is not kept; the first one is a hello. Returns the length of the one after it; 0: the opening is over. */
  take(part: Buffer): number {
    switch (this.#awaited) {
      case 'hello':
        return this.#takeHello(part);
      case 'nonce':
        this.#awaited = 'proof';
        this.#events.send((this.#handshake as ClientHandshake).prove(Buffer.concat([this.#serverHello, part])));
        return PROOF_BYTES;
      case 'proof':
        this.#awaited = 'nothing';
        if ((this.#handshake as ClientHandshake).isAnsweredBy(part)) this.#events.opened(this.#serverHello);
        else this.#events.refused('wrong');
        return 0;
      case 'nothing':
        return 0;
    }
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
      this.#awaited = 'nonce';
      return NONCE_BYTES;
    } else {
      this.#events.opened(this.#serverHello);
    }
    return 0;
  }
}

/** The accepting side of an opening. */
export class ServerOpening {
  readonly #format: HelloFormat;
  readonly #env: OpeningEnvironment;
  readonly #events: OpeningEvents;
  readonly #hello: Buffer;
  #hasGreeted = false;
  /** Created with the server's greeting; undefined before, and if this side has no secrets. */
  #handshake: ServerHandshake | undefined;
  #clientGreeting: Buffer = Buffer.alloc(0);
  /** The part that comes next. */
  #awaited: 'hello' | 'nonce' | 'proofs' | 'nothing' = 'hello';
  #isOpen = false;

  constructor(format: HelloFormat, env: OpeningEnvironment, events: OpeningEvents) {
    this.#format = format;
    this.#env = env;
    this.#events = events;
    this.#hello = format.encode({ authentication: env.secrets !== undefined });
  }

  /** Whether the opening has succeeded and the connection may be used. */
  get isOpen(): boolean {
    return this.#isOpen;
  }

  /** Whether the client's hello has arrived and the nonce that belongs to it has not. */
  get isWithinGreeting(): boolean {
    return this.#awaited === 'nonce';
  }

  /** Length of the part that comes next; 0: the opening has succeeded or failed. */
  get nextBytes(): number {
    const bytes = { hello: this.#format.bytes, nonce: NONCE_BYTES, proofs: PROOFS_BYTES, nothing: 0 };
    return bytes[this.#awaited];
  }

  /** Sends this side's hello at once, on a plane where servers do not wait for the client's. Otherwise {@link take} sends it as the answer. */
  greet(): void {
    if (this.#hasGreeted) return;
    this.#hasGreeted = true;
    const { secrets, random } = this.#env;
    if (secrets !== undefined) {
      this.#handshake = new ServerHandshake({ plane: this.#format.plane, secrets, random, hello: this.#hello });
    }
    this.#events.send(this.#handshake?.greeting ?? this.#hello);
  }

  /** Checks the start of an incomplete part: a wrong hello ends the opening at its first wrong byte. */
  examine(start: Buffer): void {
    if (this.#awaited === 'hello') this.#authenticationOf(start);
  }

  /** Takes the next part, {@link nextBytes} long, which is not kept. Returns the length of the one after it; 0: the opening is over. */
  take(part: Buffer): number {
    switch (this.#awaited) {
      case 'hello':
        this.#takeHello(part);
        break;
      case 'nonce':
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
      this.#awaited = 'nonce';
    } else {
      this.greet();
      this.#open();
    }
  }

  #takeProofs(proofs: Buffer): void {
    this.#awaited = 'nothing';
    const answer = this.#handshake?.answer(this.#clientGreeting, proofs);
    if (answer === undefined) {
      this.#events.refused('wrong');
      return;
    }
    this.#events.send(answer);
    this.#open();
  }

  #open(): void {
    this.#awaited = 'nothing';
    this.#isOpen = true;
    this.#events.opened(this.#clientGreeting.subarray(0, this.#format.bytes));
  }

  /** Whether both sides want authentication; undefined: unknown yet, or they disagree and the opening has failed. */
  #authenticationOf(start: Buffer): boolean | undefined {
    const isWanted = this.#env.secrets !== undefined;
    const authentication = inspected(this.#format, start, this.#events);
    if (authentication === undefined || authentication === isWanted) return authentication;
    this.#awaited = 'nothing';
    if (authentication === 'foreign') return undefined;
    this.#events.refused(isWanted ? 'missing' : 'unexpected', this.#hasGreeted ? undefined : this.#hello);
    return undefined;
  }
}

/** Whether a hello wants authentication, by its format; `foreign` if it is none, which has been reported to `events`. */
function inspected(format: HelloFormat, start: Buffer, events: OpeningEvents): boolean | undefined | 'foreign' {
  try {
    return format.wantsAuthentication(start);
  } catch (error) {
    if (!(error instanceof ProtocolError)) throw error;
    events.foreign(error);
    return 'foreign';
  }
}
