import type { NameAnswer, NameQuery, NameService } from '../../base/environment/name-service.js';
import type { Endpoint } from '../../base/environment/network.js';
import type { SimProcess } from './sim-process.js';

/** Milliseconds of an answer, and those until a silent name server is given up. */
const ANSWER_MS = 1;
const TIMEOUT_MS = 3_000;

/** `up`: it answers; `down`: it answers with an error; `silent`: it does not answer. */
export type NamesState = 'up' | 'down' | 'silent';

/** The name service of a world: what names mean is set by whoever runs the world. */
export class SimNames {
  /** How the name servers are. */
  state: NamesState = 'up';
  /** Seconds for which answers hold. */
  ttlS = 5;
  /** Questions so far. */
  questions = 0;
  readonly #records = new Map<string, readonly Endpoint[]>();
  readonly #views = new Map<string, ReadonlyMap<string, readonly Endpoint[]>>();

  /**
   * Sets the records of a name, addresses with port 0, or services. Processes of `host`, if given, get this answer
   * instead of the others'.
   */
  set(name: string, records: readonly (Endpoint | string)[], host?: string): void {
    const endpoints = records.map((one) => (typeof one === 'string' ? { host: one, port: 0 } : one));
    if (host === undefined) this.#records.set(name, endpoints);
    else this.#views.set(host, new Map(this.#views.get(host)).set(name, endpoints));
  }

  /** Begins an outage; the result ends it. */
  fail(state: NamesState): () => void {
    this.state = state;
    return () => {
      this.state = 'up';
    };
  }

  /** From now on every host gets the same answers. */
  showAllTheSame(): void {
    this.#views.clear();
  }

  /** @internal The name service as a process sees it. */
  seenBy(process: SimProcess): NameService {
    return {
      lookUp: (query, signal) =>
        new Promise((resolve, reject) => {
          this.questions++;
          const delayMs = this.state === 'silent' ? TIMEOUT_MS : ANSWER_MS;
          const abort = (): void => {
            cancel();
            reject(new Error('cancelled'));
          };
          signal?.addEventListener('abort', abort);
          const cancel = process.clock.after(delayMs, () => {
            signal?.removeEventListener('abort', abort);
            if (this.state === 'up' && delayMs === ANSWER_MS) resolve(this.#answer(query, process.host.name));
            else reject(new Error(this.state === 'down' ? 'query refused' : 'no name server answers'));
          });
        }),
    };
  }

  #answer({ name, kind }: NameQuery, host: string): NameAnswer {
    const records = this.#views.get(host)?.get(name) ?? this.#records.get(name) ?? [];
    const endpoints = records.filter(({ port }) => port > 0 === (kind === 'services'));
    return { endpoints, ttlS: this.ttlS };
  }
}
