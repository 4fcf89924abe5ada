/** The sum of the samples with this name and at least these labels; undefined if there are none. */
export function sampleIn(
  text: string,
  name: string,
  labels: Readonly<Record<string, string>> = {},
): number | undefined {
  const wanted = Object.entries(labels).map(([label, value]) => `${label}="${value}"`);
  const values = text.split('\n').flatMap((line) => {
    const isIt = line.startsWith(`${name}{`) || line.startsWith(`${name} `);
    const has = (part: string): boolean => line.includes(`{${part}`) || line.includes(`,${part}`);
    return isIt && wanted.every(has) ? [Number(line.slice(line.lastIndexOf(' ') + 1))] : [];
  });
  return values.length === 0 ? undefined : values.reduce((sum, value) => sum + value, 0);
}
