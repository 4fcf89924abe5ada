/** A server-sent event. `data` is what its JSON says. */
export interface SentEvent {
  readonly id?: string;
  readonly event: string;
  // biome-ignore lint/suspicious/noExplicitAny: tests look at fields of many shapes
  readonly data: any;
}

/**
 * Reads a stream of page events of a metrics server, as a router does. `take` resolves with the next event; comments
 * are counted.
 */
export class EventSource {
  comments = 0;
  readonly #body: AsyncIterator<Uint8Array>;
  readonly #abort: AbortController;
  #text = '';

  private constructor(body: AsyncIterator<Uint8Array>, abort: AbortController) {
    this.#body = body;
    this.#abort = abort;
  }

  /** Rejects unless the answer is a stream of events. */
  static async open(url: string, headers: Record<string, string> = {}): Promise<EventSource> {
    const abort = new AbortController();
    const answer = await fetch(url, { headers, signal: abort.signal });
    if (answer.status !== 200 || answer.body === null) throw new Error(`${answer.status} ${await answer.text()}`);
    return new EventSource(answer.body[Symbol.asyncIterator](), abort);
  }

  /** The next event; undefined when the server has ended the stream. */
  async take(): Promise<SentEvent | undefined> {
    for (;;) {
      const end = this.#text.indexOf('\n\n');
      if (end < 0) {
        const { value, done } = await this.#body.next();
        if (done) return undefined;
        this.#text += Buffer.from(value).toString();
        continue;
      }
      const lines = this.#text.slice(0, end).split('\n');
      this.#text = this.#text.slice(end + 2);
      if (lines[0]?.startsWith(':')) this.comments++;
      else return eventOf(lines);
    }
  }

  /** Takes events up to one that is wanted, which it returns. */
  async until(isWanted: (event: SentEvent) => boolean): Promise<SentEvent> {
    for (;;) {
      const event = await this.take();
      if (event === undefined) throw new Error('the stream has ended');
      if (isWanted(event)) return event;
    }
  }

  close(): void {
    this.#abort.abort();
  }
}

function eventOf(lines: readonly string[]): SentEvent {
  const fields = new Map(lines.map((line) => [line.slice(0, line.indexOf(':')), line.slice(line.indexOf(':') + 2)]));
  const id = fields.get('id');
  return {
    ...(id === undefined ? {} : { id }),
    event: fields.get('event') ?? '',
    data: JSON.parse(fields.get('data') ?? ''),
  };
}
