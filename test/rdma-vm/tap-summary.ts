/** How a run of tests ended. */
export interface Summary {
  readonly passed: number;
  readonly failed: number;
  readonly skipped: number;
}

/** Counts the results in the output of a run (TAP, version 13). Files that could not be run are failures there, too. */
export function tapSummary(output: string): Summary {
  const counts = { passed: 0, failed: 0, skipped: 0 };
  for (const [line] of output.matchAll(/^(not )?ok \d+.*$/gm)) {
    if (/# SKIP\b/.test(line)) counts.skipped++;
    else if (line.startsWith('not ')) counts.failed++;
    else counts.passed++;
  }
  return counts;
}
