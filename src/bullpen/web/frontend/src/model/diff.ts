// Diffs: read from what git writes, and made from an edit's old and new text. Pure.

export type LineKind = 'add' | 'del' | 'same' | 'hunk' | 'note'
export interface DiffLine { kind: LineKind; text: string; old?: number; new?: number }
export interface FileDiff { name: string; added: number; deleted: number; lines: DiffLine[] }

/** A text of `git diff`, file by file. What stands before the first file is a file without name. */
export function readDiff(text: string): FileDiff[] {
  const files: FileDiff[] = []
  let file: FileDiff | null = null
  let [oldLine, newLine, oldLeft, newLeft] = [0, 0, 0, 0]
  const open = (name: string): FileDiff => {
    const made = { name, added: 0, deleted: 0, lines: [] }
    files.push(made)
    return made
  }
  for (const line of text.replace(/\n$/, '').split('\n')) {
    const inHunk = oldLeft > 0 || newLeft > 0
    if (inHunk && file) {
      const mark = line[0] ?? ' '
      if (mark === '+') {
        file.lines.push({ kind: 'add', text: line.slice(1), new: newLine++ })
        file.added++, newLeft--
        continue
      }
      if (mark === '-') {
        file.lines.push({ kind: 'del', text: line.slice(1), old: oldLine++ })
        file.deleted++, oldLeft--
        continue
      }
      if (mark === ' ') {
        file.lines.push({ kind: 'same', text: line.slice(1), old: oldLine++, new: newLine++ })
        oldLeft--, newLeft--
        continue
      }
      if (mark === '\\') {
        file.lines.push({ kind: 'note', text: line.slice(2) })
        continue
      }
    }
    if (line.startsWith('diff --git ')) {
      file = open(nameIn(line))
      oldLeft = newLeft = 0
      continue
    }
    const hunk = /^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@(.*)$/.exec(line)
    if (hunk) {
      file ??= open('')
      oldLine = Number(hunk[1]), newLine = Number(hunk[3])
      oldLeft = Number(hunk[2] ?? 1), newLeft = Number(hunk[4] ?? 1)
      file.lines.push({ kind: 'hunk', text: hunk[5]!.trim() || `line ${newLine}` })
      continue
    }
    if (line.startsWith('\\')) {
      file?.lines.push({ kind: 'note', text: line.slice(2) })
    } else if (file && /^\+\+\+ /.test(line)) {
      if (line !== '+++ /dev/null') file.name = withoutPrefix(line.slice(4))
    } else if (file && /^(rename|copy) to /.test(line)) {
      file.lines.push({ kind: 'note', text: line })
    } else if (file && /^(index|---|similarity|rename from|copy from|dissimilarity) ?/.test(line)) {
      continue
    } else if (line) {
      (file ??= open('')).lines.push({ kind: 'note', text: line })
    }
  }
  return files
}

function nameIn(line: string): string {
  const rest = line.slice('diff --git '.length)
  const half = rest.slice(Math.ceil(rest.length / 2))  // `a/NAME b/NAME`: both are the same, mostly
  return withoutPrefix(half.trim())
}

function withoutPrefix(name: string): string {
  return name.replace(/^"?[ab]\//, '').replace(/"$/, '')
}

const CONTEXT = 3
const MOST_CELLS = 4_000_000

/** The difference of two texts by lines, as an edit is shown: the common parts shortened. */
export function compare(before: string, after: string): DiffLine[] {
  const old = before ? before.replace(/\n$/, '').split('\n') : []
  const now = after ? after.replace(/\n$/, '').split('\n') : []
  let head = 0
  while (head < old.length && head < now.length && old[head] === now[head]) head++
  let tail = 0
  while (tail < old.length - head && tail < now.length - head && old[old.length - 1 - tail] === now[now.length - 1 - tail]) tail++
  const middle = byLines(old.slice(head, old.length - tail), now.slice(head, now.length - tail))
  const same = (text: string): DiffLine => ({ kind: 'same', text })
  const before_ = old.slice(Math.max(0, head - CONTEXT), head).map(same)
  const after_ = old.slice(old.length - tail, old.length - tail + CONTEXT).map(same)
  return [...before_, ...middle, ...after_, ...lineBreak(before, after)]
}

/** No line differs then, and what follows in the file is joined to this one, or cut off from it. */
function lineBreak(before: string, after: string): DiffLine[] {
  if (!before || !after || before.endsWith('\n') === after.endsWith('\n')) return []
  return after.endsWith('\n')
    ? [{ kind: 'add', text: '(a line break after it)' }]
    : [{ kind: 'del', text: '(the line break after it: what follows is joined to this line)' }]
}

function byLines(old: string[], now: string[]): DiffLine[] {
  if (old.length * now.length > MOST_CELLS) {
    return [...old.map(text => ({ kind: 'del' as const, text })), ...now.map(text => ({ kind: 'add' as const, text }))]
  }
  // Longest common subsequence, from the end.
  const width = now.length + 1
  const longest = new Uint32Array((old.length + 1) * width)
  for (let i = old.length - 1; i >= 0; i--) {
    for (let j = now.length - 1; j >= 0; j--) {
      longest[i * width + j] = old[i] === now[j]
        ? longest[(i + 1) * width + j + 1]! + 1
        : Math.max(longest[(i + 1) * width + j]!, longest[i * width + j + 1]!)
    }
  }
  const lines: DiffLine[] = []
  let [i, j] = [0, 0]
  while (i < old.length || j < now.length) {
    if (i < old.length && j < now.length && old[i] === now[j]) {
      lines.push({ kind: 'same', text: old[i]! })
      i++, j++
    } else if (i < old.length && (j >= now.length || longest[(i + 1) * width + j]! >= longest[i * width + j + 1]!)) {
      lines.push({ kind: 'del', text: old[i++]! })
    } else {
      lines.push({ kind: 'add', text: now[j++]! })
    }
  }
  return lines
}
