import { assert, assertEqual } from '../base/assert.js';
import { Cancellation } from '../base/concurrency/cancellation.js';
import type { ServedConnection } from '../net/served/served-connection.js';
import type { CallTime } from '../store/call/call-options.js';
import type { ClientLimits } from './client-limits.js';
import { type FrameHeader, RequestType } from './wire/messages.js';

/** A request that was received and not answered yet. */
export interface ClientRequest {
  readonly header: FrameHeader;
  readonly body: Buffer;
  readonly time: CallTime;
  readonly abort: Cancellation;
  readonly cancelDeadline: () => void;
  /** Returns the memory that was reserved for its body. */
  readonly giveBack: () => void;
  /** Bytes of the body if no memory was reserved for it. */
  readonly smallBytes: number;
  /** Fences that wait for this request. */
  readonly onAnswered: (() => void)[];
}

/** The parts of a new request; `giveBack` is missing if no memory was reserved for its body. */
export type RequestBeginning = Pick<ClientRequest, 'header' | 'body'> &
  Partial<Pick<ClientRequest, 'time' | 'abort' | 'cancelDeadline' | 'giveBack'>>;

/** Time limit of requests that only wait for others: none. */
const ENDLESS: CallTime = { askedMs: 0, isOver: () => false };

/**
 * The requests of one client that were received and not answered yet. A few run, the others wait in a queue. HELLO and
 * fences do neither. EVENTS and PREFETCH run in addition to the few: they wait for something and must not keep others
 * from running.
 *
 * Accounting: waiting and running requests are in flight. The connection counts all requests except fences, and the
 * bodies for which no memory was reserved. It is held while a request runs.
 */
export class RequestsInFlight {
  readonly #limits: ClientLimits;
  readonly #served: ServedConnection;
  /** Requests by id, oldest first. */
  readonly #byId = new Map<number, ClientRequest>();
  readonly #waiting: ClientRequest[] = [];
  readonly #running = new Set<ClientRequest>();
  #fenceCount = 0;
  #bytesRunningCount = 0;
  /** EVENTS requests in flight. */
  #eventsCount = 0;
  /** Requests in addition to the few that are running. */
  #patientRunningCount = 0;

  constructor(limits: ClientLimits, served: ServedConnection) {
    this.#limits = limits;
    this.#served = served;
  }

  get count(): number {
    return this.#byId.size;
  }

  get runningCount(): number {
    return this.#running.size;
  }

  get fenceCount(): number {
    return this.#fenceCount;
  }

  get(id: number): ClientRequest | undefined {
    return this.#byId.get(id);
  }

  /** All requests, oldest first. */
  all(): ClientRequest[] {
    return [...this.#byId.values()];
  }

  /** Returns the requests that a fence for request `id` waits for; with `id` 0, all earlier requests. */
  awaitedBy(id: number): ClientRequest[] {
    // Other fences need not be awaited, because the requests that they wait for are awaited here, too. Those that
    // are patient touch no memory of the client.
    const isAwaited = (request: ClientRequest): boolean => !isFence(request) && !isPatient(request);
    const of = id === 0 ? this.all().filter(isAwaited) : [this.get(id)];
    return of.filter((request) => request !== undefined);
  }

  /** Returns why one more request is too much, or undefined. `isReserved`: memory is reserved for its body. */
  tooMuch(type: number, body: Buffer, isReserved: boolean): string | undefined {
    if (type === RequestType.events && this.#eventsCount > 0) return 'an EVENTS is in flight, no more are allowed';
    const { inFlightMaxCount, smallBodiesMaxBytes } = this.#limits;
    switch (this.#served.tooMuch(isReserved ? 0 : body.length)) {
      case 'count':
        return `${inFlightMaxCount} requests are in flight, no more are allowed`;
      case 'bytes':
        return `${this.#served.inFlightBytes} bytes of requests are in flight, allowed are ${smallBodiesMaxBytes}`;
      default:
        return undefined;
    }
  }

  /** Adds a request to those in flight. */
  begin({ header, body, time, abort, cancelDeadline, giveBack }: RequestBeginning): ClientRequest {
    const request: ClientRequest = {
      header,
      body,
      time: time ?? ENDLESS,
      abort: abort ?? new Cancellation(),
      cancelDeadline: cancelDeadline ?? (() => {}),
      giveBack: giveBack ?? (() => {}),
      smallBytes: giveBack === undefined ? body.length : 0,
      onAnswered: [],
    };
    this.#byId.set(header.requestId, request);
    if (isFence(request)) this.#fenceCount++;
    else this.#served.begin(request.smallBytes);
    if (isForEvents(request)) this.#eventsCount++;
    return request;
  }

  /** Removes a request from those in flight. */
  settle(request: ClientRequest): void {
    if (!this.#byId.delete(request.header.requestId)) return;
    if (isFence(request)) this.#fenceCount--;
    if (isForEvents(request)) this.#eventsCount--;
    request.cancelDeadline();
    request.giveBack();
    if (!isFence(request)) this.#served.settle(request.smallBytes);
  }

  /** Puts a request into the queue. */
  wait(request: ClientRequest): void {
    this.#waiting.push(request);
  }

  /** Whether this request is the last one in the queue. */
  isLast(request: ClientRequest): boolean {
    return this.#waiting.at(-1) === request;
  }

  /** Takes the next request out of the queue to run it; undefined if none waits or enough are running. */
  runNext(): ClientRequest | undefined {
    const isFull = this.#running.size - this.#patientRunningCount >= this.#limits.runningMaxCount;
    const isBytesFull = this.#bytesRunningCount >= this.#limits.bytesRunningMaxCount;
    const mayRun = (request: ClientRequest): boolean =>
      isPatient(request) || (!isFull && !(isBytesFull && isForBytes(request)));
    const next = this.#waiting.find(mayRun);
    if (next !== undefined) this.runNow(next);
    return next;
  }

  /** Takes this request out of the queue to run it, whatever else runs. Returns false if it was not queued. */
  runNow(request: ClientRequest): boolean {
    const index = this.#waiting.indexOf(request);
    if (index < 0) return false;
    this.#waiting.splice(index, 1);
    this.#running.add(request);
    this.#served.hold();
    this.#bytesRunningCount += Number(isForBytes(request));
    this.#patientRunningCount += Number(isPatient(request));
    return true;
  }

  /** Removes a request that has run. The request holds the connection until {@link answered} is called. */
  ended(request: ClientRequest): void {
    if (this.#running.delete(request)) {
      this.#bytesRunningCount -= Number(isForBytes(request));
      this.#patientRunningCount -= Number(isPatient(request));
    }
    this.settle(request);
  }

  /** Called when a request that has run is answered, and so are the fences that waited for it. */
  answered(): void {
    this.#served.letGo();
  }

  /** Removes all requests that are not running. They will never run. */
  dropWaiting(): void {
    this.#waiting.length = 0;
    for (const request of this.all()) if (!this.#running.has(request)) this.settle(request);
  }

  /** Throws `InvariantError` unless the accounting of this class holds. */
  verify(): void {
    for (const request of [...this.#waiting, ...this.#running]) {
      const { requestId } = request.header;
      const isInFlight = this.#byId.get(requestId) === request;
      assert(isInFlight, () => `requests in flight: ${requestId} waits or runs, and is not in flight`);
    }
    const active = new Set([...this.#waiting, ...this.#running]);
    assertEqual('requests in flight: those that wait or run', this.#waiting.length + this.#running.size, active.size);
    const all = this.all();
    const smallBytes = all.reduce((sum, request) => sum + request.smallBytes, 0);
    assertEqual('requests in flight: fences', this.#fenceCount, all.filter(isFence).length);
    assertEqual('requests in flight: bytes of small bodies', this.#served.inFlightBytes, smallBytes);
    assertEqual('requests in flight: all but fences', this.#served.inFlightCount, all.length - this.#fenceCount);
    const bytesRunning = [...this.#running].filter(isForBytes).length;
    assertEqual('requests in flight: those that run for bytes', this.#bytesRunningCount, bytesRunning);
    assertEqual('requests in flight: EVENTS', this.#eventsCount, all.filter(isForEvents).length);
    const patientRunning = [...this.#running].filter(isPatient).length;
    assertEqual('requests in flight: patient ones that run', this.#patientRunningCount, patientRunning);
  }
}

function isFence({ header }: ClientRequest): boolean {
  return header.type === RequestType.fence;
}

function isForBytes({ header }: ClientRequest): boolean {
  return header.type === RequestType.getBytes;
}

function isForEvents({ header }: ClientRequest): boolean {
  return header.type === RequestType.events;
}

/** Whether a request waits for something that may take long: for events, or for pages from slower tiers. */
function isPatient(request: ClientRequest): boolean {
  return isForEvents(request) || request.header.type === RequestType.prefetch;
}
