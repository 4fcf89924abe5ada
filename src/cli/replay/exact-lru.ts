/** Id of the end of the list; 0 is never the id of a page. */
const END = 0;

/**
 * The prefixes that a cache with an exact least-recently-used order would hold: the reference of a replay. The pages of
 * a request are used in order; then the missing ones are added in order.
 */
export class ExactLru {
  readonly #capacityPages: number;
  /** Ids of pages, from 1 on in the order in which the pages first occur. No id is used again. */
  readonly #idOf = new Map<number, number>();
  /** Neighbours in the order of use, by id. The neighbours of END are the most and the least recently used page. */
  #older: Int32Array<ArrayBuffer> = new Int32Array(1024);
  #newer: Int32Array<ArrayBuffer> = new Int32Array(1024);
  #isHere: Uint8Array<ArrayBuffer> = new Uint8Array(1024);
  #size = 0;
  #prefixHits = 0;
  #asked = 0;

  /** A capacity of Infinity means that no page is ever evicted. */
  constructor(capacityPages: number) {
    this.#capacityPages = capacityPages;
  }

  /** Part of all requested pages that were found before their request's first miss. */
  get prefixHitRate(): number {
    return this.#asked === 0 ? 0 : this.#prefixHits / this.#asked;
  }

  /** Number of distinct pages requested so far. */
  get uniquePages(): number {
    return this.#idOf.size;
  }

  request(pages: readonly number[]): void {
    const ids = pages.map((page) => this.#id(page));
    const firstMiss = ids.findIndex((id) => this.#isHere[id] === 0);
    this.#prefixHits += firstMiss < 0 ? ids.length : firstMiss;
    this.#asked += ids.length;
    for (const id of ids) this.#use(id);
  }

  #id(page: number): number {
    const known = this.#idOf.get(page);
    if (known !== undefined) return known;
    const id = this.#idOf.size + 1;
    this.#idOf.set(page, id);
    if (id === this.#isHere.length) this.#grow();
    return id;
  }

  #use(id: number): void {
    if (this.#isHere[id] === 1) this.#unlink(id);
    else this.#size++;
    this.#isHere[id] = 1;
    const newest = this.#older[END] as number;
    this.#older[id] = newest;
    this.#newer[id] = END;
    this.#newer[newest] = id;
    this.#older[END] = id;
    if (this.#size <= this.#capacityPages) return;
    const oldest = this.#newer[END] as number;
    this.#unlink(oldest);
    this.#isHere[oldest] = 0;
    this.#size--;
  }

  #unlink(id: number): void {
    const [older, newer] = [this.#older[id] as number, this.#newer[id] as number];
    this.#newer[older] = newer;
    this.#older[newer] = older;
  }

  #grow(): void {
    const length = this.#isHere.length * 2;
    const larger = <T extends Int32Array<ArrayBuffer> | Uint8Array<ArrayBuffer>>(array: T, copy: T): T => {
      copy.set(array);
      return copy;
    };
    this.#older = larger(this.#older, new Int32Array(length));
    this.#newer = larger(this.#newer, new Int32Array(length));
    this.#isHere = larger(this.#isHere, new Uint8Array(length));
  }
}
