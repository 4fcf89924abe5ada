/**
 * The content of a simulation's report, which `reportPage` renders. Texts are plain and never interpreted as markup.
 */
export interface Report {
  readonly title: string;
  /** One or two sentences below the title. */
  readonly summary: string;
  /** Parameters of the run, in order. */
  readonly parameters: readonly ReportParameter[];
  /** The figures that a reader looks for first, at most six. */
  readonly highlights: readonly ReportHighlight[];
  readonly sections: readonly ReportSection[];
}

interface ReportParameter {
  readonly name: string;
  readonly value: string;
}

export interface ReportHighlight {
  readonly label: string;
  readonly value: string;
  /** Explains the value. */
  readonly note: string;
}

export interface ReportSection {
  readonly title: string;
  readonly note?: string;
  readonly blocks: readonly ReportBlock[];
}

export type ReportBlock = LineChart | BarChart | ReportTable;

/** Formats a number. */
type NumberFormat = (value: number) => string;

export interface Axis {
  readonly label: string;
  readonly format: NumberFormat;
  /**
   * Kind of scale; a logarithmic one shows only values above 0. Default: linear, from 0 on unless `min` says otherwise.
   */
  readonly scale?: 'linear' | 'log';
  /** Values with a grid line and a label. Default: round values. */
  readonly ticks?: readonly number[];
  /** The axis starts at this value or below it. */
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
  /** The lines; they differ by colour and dashes, which repeat after eight. */
  readonly series: readonly LineSeries[];
  /** Events on the x axis: faults, changes, phases. */
  readonly marks?: readonly ChartMark[];
  /** Whether the chart is as wide as the page. */
  readonly isWide?: boolean;
}

export interface LineSeries {
  readonly name: string;
  /** Points in the order of x; a y of null is a gap. */
  readonly points: readonly (readonly [x: number, y: number | null])[];
  /** Whether the line is a limit that others are compared with; it is drawn thin and grey. */
  readonly isBound?: boolean;
}

/** A moment or a period on the x axis. */
export interface ChartMark {
  readonly x: number;
  /** End of a period; undefined for a moment. */
  readonly endX?: number;
  readonly label: string;
  /** Kind of the mark; faults stand out. Default: `change`. */
  readonly kind?: 'fault' | 'change';
}

/** Bars one below the other, each of stacked parts. */
export interface BarChart {
  readonly kind: 'bars';
  readonly title: string;
  readonly note?: string;
  /** Names of the parts from the left. With `isLastRest`, the last one is a remainder and drawn faintly. */
  readonly parts: readonly string[];
  readonly isLastRest?: boolean;
  readonly bars: readonly Bar[];
  readonly format: NumberFormat;
  readonly isWide?: boolean;
}

export interface Bar {
  readonly name: string;
  /** One value for each part. */
  readonly values: readonly number[];
}

export interface ReportTable {
  readonly kind: 'table';
  readonly title: string;
  readonly note?: string;
  readonly columns: readonly ReportColumn[];
  /** One text for each column. */
  readonly rows: readonly (readonly string[])[];
}

export interface ReportColumn {
  readonly name: string;
  /** Whether the column is right-aligned. */
  readonly isNumeric?: boolean;
  /** Whether the column has sentences, which may wrap. */
  readonly isProse?: boolean;
}
