import { BodyPages } from '../../../src/clients/wire/body-pages.js';
import { BodyTexts } from '../../../src/clients/wire/body-texts.js';

/** A message with everything that was left in its body. */
export type Whole<T> = T extends BodyTexts
  ? string[]
  : T extends BodyPages
    ? Buffer[]
    : T extends Readonly<Record<string, unknown>>
      ? { [Name in keyof T]: T[Name] extends BodyTexts | BodyPages ? Whole<T[Name]> : T[Name] }
      : T;

/** Takes what a decoded message has left in its body out of it. */
export function whole<T>(decoded: T): Whole<T> {
  const isPlain =
    typeof decoded === 'object' && decoded !== null && Object.getPrototypeOf(decoded) === Object.prototype;
  if (!isPlain) return taken(decoded) as Whole<T>;
  return Object.fromEntries(Object.entries(decoded).map(([name, value]) => [name, taken(value)])) as Whole<T>;
}

/** Takes all steps at once. */
export function ended<T>(steps: Generator<void, T>): T {
  for (;;) {
    const step = steps.next();
    if (step.done === true) return step.value;
  }
}

function taken(value: unknown): unknown {
  if (isColumns(value)) {
    const { pieceCount, offsets, lengths, regionIds } = value;
    return { pieceCount, offsets: [...offsets], lengths: [...lengths], regionIds: [...regionIds] };
  }
  return value instanceof BodyTexts || value instanceof BodyPages ? value.slice(0, value.count) : value;
}

interface Columns {
  readonly pieceCount: number;
  readonly offsets: Float64Array;
  readonly lengths: Uint32Array;
  readonly regionIds: Uint32Array;
}

function isColumns(value: unknown): value is Columns {
  return typeof value === 'object' && value !== null && 'pieceCount' in value;
}
