import type { NameAnswer, NameQuery, NameService } from '../../base/environment/name-service.js';
import type { Endpoint } from '../../base/environment/network.js';
import type { SimProcess } from './sim-process.js';

/** Milliseconds until a query is answered. */
const ANSWER_MS = 1;
/** Milliseconds after which a query to a silent name server fails. */
const TIMEOUT_MS = 3_000;

/** `up`: it answers; `down`: it answers with an error; `silent`: it does not answer. */
export type NamesState = 'up' | 'down' | 'silent';

/** The name service of a world. The program that runs the world sets the records. */
export class SimNames {
  /** State of the name servers. */
  state: NamesState = 'up';
  /** Seconds for which answers are valid. */
  ttlS = 5;
  /** Number of questions so far. */
  questions = 0;
  readonly #records = new Map<string, readonly Endpoint[]>();
  readonly #views = new Map<string, ReadonlyMap<string, readonly Endpoint[]>>();

  /**
   * Sets the records of a name: addresses, which have port 0, or services. With `host`, only the processes of that host
   * get these records, instead of those for all hosts.
   */
  set(name: string, records: readonly (Endpoint | string)[], host?: string): void {
    const endpoints = records.map((one) => (typeof one === 'string' ? { host: one, port: 0 } : one));
    if (host === undefined) this.#records.set(name, endpoints);
    else this.#views.set(host, new Map(this.#views.get(host)).set(name, endpoints));
  }

  /** Begins an outage; the returned function ends it. */
  fail(state: NamesState): () => void {
    this.state = state;
    return () => {
      this.state = 'up';
    };
  }

  /** Removes all records that are for one host only. */
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
