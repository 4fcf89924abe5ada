/** The end of the list: id 0 is never a page. */
const END = 0;

/**
 * Which prefixes a cache with an exact least-recently-used order would have: what a replay is held against.
 * The pages of a request are used in order, then those that are missing are put in, in order.
 */
export class ExactLru {
  readonly #capacityPages: number;
  /** Ids count from 1 in the order in which pages come up; no page's id is used again. */
  readonly #idOf = new Map<number, number>();
  /** Neighbours in the order of use, by id; of END the most and the least recently used page. */
  #older: Int32Array<ArrayBuffer> = new Int32Array(1024);
  #newer: Int32Array<ArrayBuffer> = new Int32Array(1024);
  #isHere: Uint8Array<ArrayBuffer> = new Uint8Array(1024);
  #size = 0;
  #prefixHits = 0;
  #asked = 0;

  /** Infinity: nothing ever goes. */
  constructor(capacityPages: number) {
    this.#capacityPages = capacityPages;
  }

  /** Pages found before a request's first miss, of all asked for. */
  get prefixHitRate(): number {
    return this.#asked === 0 ? 0 : this.#prefixHits / this.#asked;
  }

  /** Different pages that have been asked for. */
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
