// TypeDoc loads it (typedoc.json): names, groups and anchors of the documents on the site.

/** Groups of the navigation, by the path of a document: the first that fits. */
const GROUPS = [
  [/^docs\/guides\//, 'Guides'],
  [/^docs\//, 'Documents'],
  [/^(?:examples|src\/python)\//, 'Examples'],
  [/^src\//, 'Protocols and formats'],
  [/^/, 'Project'],
];

export function load(app) {
  app.on('bootstrapEnd', () => app.options.setValue('markdownItLoader', adaptMarkdown));
  app.converter.on('createDocument', (_context, document) => {
    const [, group] = GROUPS.find(([path]) => path.test(document.name));
    document.frontmatter.group = group;
  });
  // From here on pages have their addresses, which are those of the documents' files.
  app.renderer.on('beginRender', ({ project }) => {
    for (const document of project.documents) document.name = titleOf(document) ?? document.name;
  });
}

/** The first heading of a document, as text. */
function titleOf({ content }) {
  const text = content.map((part) => part.text).join('');
  return /^# (.+)$/m.exec(text)?.[1].replaceAll('`', '');
}

function adaptMarkdown(parser) {
  // Wide tables scroll, also by the keyboard.
  parser.renderer.rules.table_open = () => '<div class="wide" tabindex="0"><table>';
  parser.renderer.rules.table_close = () => '</table></div>';
  // TypeDoc leaves words in code out of the anchors of headings. GitHub, whose anchors the documents use, does not.
  parser.core.ruler.push('code-in-anchors', ({ tokens }) => {
    const headings = tokens.filter((_token, i) => tokens[i - 1]?.type === 'heading_open');
    for (const token of headings.flatMap(({ children }) => children)) {
      if (token.type === 'code_inline') token.children = [{ type: 'text', content: token.content }];
    }
  });
}
