import { anchorsOf, type Fence, fencesOf } from './markdown.js';

/** What a guide promises in its beginning: `From nothing to [a verified read](#section): 4 commands and 1 program`. */
const PROMISE = /From nothing to \[[^\]]+\]\(#([\w-]+)\): (\d+) commands?(?: and (\d+) programs?)?[,.]/;

/** How far it is from nothing to the first result of a guide that is checked. */
export interface Distance {
  readonly commands: number;
  /** Programs that the reader saves in files. */
  readonly programs: number;
}

/** The first checked result of a guide: the last block of text in the section that its beginning names. */
export interface FirstResult {
  readonly promised: Distance;
  readonly counted: Distance;
  /** Index of its block among all fenced blocks of the guide. */
  readonly index: number;
}

/** Throws an error if the guide promises nothing, or if the section has no block of text. */
export function firstResultOf(guide: string): FirstResult {
  const [, anchor, commands, programs = 0] = PROMISE.exec(guide) ?? [];
  if (anchor === undefined) throw new Error('the guide does not say how many commands lead to its first result');
  const fences = fencesOf(upToTheEndOf(anchor, guide));
  const index = fences.findLastIndex(({ language }) => language === 'text');
  if (index < 0) throw new Error(`no block of text up to the end of the section #${anchor}`);
  const before = fences.slice(0, index).filter(({ words }) => !words.includes('not-run'));
  const counted = {
    commands: before.flatMap(commandsOf).length,
    programs: before.filter(({ language }) => language === 'js').length,
  };
  return { promised: { commands: Number(commands), programs: Number(programs) }, counted, index };
}

/** The distance and the time that it took, for a log. */
export function shownDistance({ commands, programs, seconds }: Distance & { readonly seconds: number }): string {
  return `first result after ${commands} commands and ${programs} programs, in ${seconds.toFixed(1)} s`;
}

/** The commands of a block, each without the ends of its lines. */
function commandsOf({ language, text }: Fence): string[] {
  if (language !== 'sh') return [];
  const commands = text
    .replaceAll(/\\\n */g, '')
    .split('\n')
    .filter((line) => !/^\s*(#|$)/.test(line));
  const isLoop = (command: string): boolean => /^until .*; do .*; done$/.test(command);
  const several = commands.find((command) => /&&|\|\||;/.test(command) && !isLoop(command));
  if (several !== undefined) throw new Error(`these are several commands in one line: ${several}`);
  return commands;
}

/** The guide up to the end of the section with this anchor. */
function upToTheEndOf(anchor: string, guide: string): string {
  const sections = guide.split(/^(?=## )/m);
  const index = sections.findIndex((section) => section.startsWith('## ') && anchorsOf(section).has(anchor));
  if (index < 0) throw new Error(`the guide has no section #${anchor}`);
  return sections.slice(0, index + 1).join('');
}
