/**
 * What a simulation reports, for `reportPage` to draw. Texts are plain: whatever they contain, it is shown and never understood as markup.
 */
export interface Report {
  readonly title: string;
  /** One or two sentences below the title. */
  readonly summary: string;
  /** What the run was given, in order. */
  readonly parameters: readonly ReportParameter[];
  /** The figures that a reader looks for first; at most six look well. */
  readonly highlights: readonly ReportHighlight[];
  readonly sections: readonly ReportSection[];
}

export interface ReportParameter {
  readonly name: string;
  readonly value: string;
}

export interface ReportHighlight {
  readonly label: string;
  readonly value: string;
  /** What the value is of. */
  readonly note: string;
}

export interface ReportSection {
  readonly title: string;
  readonly note?: string;
  readonly blocks: readonly ReportBlock[];
}

export type ReportBlock = LineChart | BarChart | ReportTable;

/** How a number is written. */
export type NumberFormat = (value: number) => string;

export interface Axis {
  readonly label: string;
  readonly format: NumberFormat;
  /** Logarithmic ones have room for values above 0 only. Default: linear, from 0 on unless `min` says otherwise. */
  readonly scale?: 'linear' | 'log';
  /** Values with a line and a name. Default: round ones. */
  readonly ticks?: readonly number[];
  /** The axis reaches at least to here. */
  readonly min?: number;
  readonly max?: number;
}

/** Lines over time or another quantity. */
export interface LineChart {
  readonly kind: 'lines';
  readonly title: string;
  readonly note?: string;
  readonly x: Axis;
  readonly y: Axis;
  /** Differ by colour and by dashes; more than eight repeat them. */
  readonly series: readonly LineSeries[];
  /** What happened when: faults, changes, phases. */
  readonly marks?: readonly ChartMark[];
  /** As wide as the page. */
  readonly isWide?: boolean;
}

export interface LineSeries {
  readonly name: string;
  /** In order of x; a y of null is a gap. */
  readonly points: readonly (readonly [x: number, y: number | null])[];
  /** A limit that other lines are held against is drawn thin and grey. */
  readonly isBound?: boolean;
}

/** A moment or a stretch of time on the x axis. */
export interface ChartMark {
  readonly x: number;
  /** End of a stretch. */
  readonly endX?: number;
  readonly label: string;
  /** Faults stand out. Default: `change`. */
  readonly kind?: 'fault' | 'change';
}

/** Bars one below the other, each of parts that add up. */
export interface BarChart {
  readonly kind: 'bars';
  readonly title: string;
  readonly note?: string;
  /** Names of the parts, from the left. The last one is drawn faint when `isLastRest` is set: what is left. */
  readonly parts: readonly string[];
  readonly isLastRest?: boolean;
  readonly bars: readonly Bar[];
  readonly format: NumberFormat;
  readonly isWide?: boolean;
}

export interface Bar {
  readonly name: string;
  /** One a part. */
  readonly values: readonly number[];
}

export interface ReportTable {
  readonly kind: 'table';
  readonly title: string;
  readonly note?: string;
  readonly columns: readonly ReportColumn[];
  /** One text a column. */
  readonly rows: readonly (readonly string[])[];
}

export interface ReportColumn {
  readonly name: string;
  /** Written to the right. */
  readonly isNumeric?: boolean;
}
