import type { Axis } from './report.js';

/** Maps values to places between 0 and 1 on an axis, and chooses its labels. */
export interface Scale {
  readonly ticks: readonly number[];
  place(value: number): number;
}

/** A scale that has room for all values, with about that many round ticks. */
export function scaleOf(axis: Axis, values: readonly number[], ticksCount = 5): Scale {
  return axis.scale === 'log' ? logScale(axis, values) : linearScale(axis, values, ticksCount);
}

function linearScale(axis: Axis, values: readonly number[], ticksCount: number): Scale {
  const min = lowest(values, axis.min ?? 0);
  const highestValue = highest(values, axis.max ?? Number.NEGATIVE_INFINITY);
  const max = highestValue > min ? highestValue : min + 1;
  const step = roundStep((max - min) / ticksCount);
  // A fixed end stays; an open one moves to the next line.
  const end = axis.max !== undefined && axis.max >= max ? axis.max : Math.ceil(max / step - 1e-9) * step;
  const ticks: number[] = [];
  for (let i = Math.ceil(min / step - 1e-9); i * step <= end + step * 1e-9; i++)
    ticks.push(Number((i * step).toPrecision(12)));
  return { ticks: axis.ticks ?? ticks, place: (value) => (value - min) / (end - min) };
}

function logScale(axis: Axis, values: readonly number[]): Scale {
  const positive = values.filter((value) => value > 0);
  const low = Math.log10(
    positive.length === 0 ? (axis.min ?? 1) : lowest(positive, axis.min ?? Number.POSITIVE_INFINITY),
  );
  const high = Math.log10(positive.length === 0 ? (axis.max ?? 10) : highest(positive, axis.max ?? 0));
  const ticks: number[] = [];
  for (let power = Math.ceil(low - 1e-9); power <= high + 1e-9; power++) ticks.push(10 ** power);
  // A single value lies in the middle.
  const place = (value: number): number => (high - low < 1e-9 ? 0.5 : (Math.log10(value) - low) / (high - low));
  return { ticks: axis.ticks ?? ticks, place };
}

/** The next number not below `step` that is 1, 2 or 5 times a power of ten. */
function roundStep(step: number): number {
  const power = 10 ** Math.floor(Math.log10(step));
  const factor = [1, 2, 5, 10].find((candidate) => candidate * power >= step * (1 - 1e-9)) ?? 10;
  return factor * power;
}

function lowest(values: readonly number[], start: number): number {
  return values.reduce((least, value) => Math.min(least, value), start);
}

function highest(values: readonly number[], start: number): number {
  return values.reduce((most, value) => Math.max(most, value), start);
}
