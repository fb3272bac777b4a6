// What a tool wants to do, in a form that a person reads fast and completely. Pure.
import { compare, type DiffLine } from './diff.ts'

export interface Edit { path: string; lines: DiffLine[]; isNew: boolean }
export interface Shown { edits: Edit[]; rest: [string, string][] }

const ONE = ['file_path', 'old_string', 'new_string']
const WHOLE = ['file_path', 'content']
/** Of Claude Code, then of Gemini CLI. */
const KNOWN: Record<string, string[]> = { Edit: ONE, MultiEdit: ['file_path', 'edits'], Write: WHOLE, replace: ONE, write_file: WHOLE }

/** The edits of a request, and every field that they do not show; null if it is no edit of a form
 *  that is known here: then its text is shown as it is. */
export function readEdits(tool: string, input: Record<string, unknown> | null): Shown | null {
  const known = KNOWN[tool]
  if (!known || !input) return null
  const path = input['file_path']
  if (typeof path !== 'string') return null
  const edits = editsOf(tool, input, path)
  if (!edits) return null
  const rest = Object.entries(input)
    .filter(([name]) => !known.includes(name))
    .map(([name, value]): [string, string] => [name, typeof value === 'string' ? value : JSON.stringify(value)])
  return { edits, rest }
}

function editsOf(tool: string, input: Record<string, unknown>, path: string): Edit[] | null {
  if (KNOWN[tool] === WHOLE) {
    const content = input['content']
    return typeof content === 'string' ? [{ path, isNew: true, lines: compare('', content) }] : null
  }
  const parts = KNOWN[tool] === ONE ? [input] : input['edits']
  if (!Array.isArray(parts)) return null
  const edits: Edit[] = []
  for (const part of parts as Record<string, unknown>[]) {
    const { old_string: before, new_string: after, ...others } = part ?? {}
    if (typeof before !== 'string' || typeof after !== 'string') return null
    // An edit within a list may say more than we show: then it is shown as text.
    if (tool === 'MultiEdit' && Object.keys(others).length) return null
    edits.push({ path, isNew: false, lines: compare(before, after) })
  }
  return edits.length ? edits : null
}

/** A patch as Codex writes it, file by file; null if it is of another form. */
export function readPatch(tool: string, input: Record<string, unknown> | null): Shown | null {
  const text = input?.['input']
  if (tool !== 'apply_patch' || typeof text !== 'string') return null
  const edits: Edit[] = []
  for (const line of text.replace(/\n$/, '').split('\n')) {
    const file = /^\*\*\* (Add|Update|Delete) File: (.*)$/.exec(line)
    const lines = edits.at(-1)?.lines
    if (file) edits.push({ path: file[2]!, isNew: file[1] === 'Add', lines: file[1] === 'Delete' ? [{ kind: 'note', text: 'deleted' }] : [] })
    else if (/^\*\*\* (Begin Patch|End Patch|End of File)$/.test(line)) continue
    else if (!lines) return null
    else if (line.startsWith('*** Move to: ')) lines.push({ kind: 'note', text: line.slice(4) })
    else if (line.startsWith('@@')) lines.push({ kind: 'hunk', text: line.slice(2).trim() })
    else if (line.startsWith('+')) lines.push({ kind: 'add', text: line.slice(1) })
    else if (line.startsWith('-')) lines.push({ kind: 'del', text: line.slice(1) })
    else if (line.startsWith(' ') || line === '') lines.push({ kind: 'same', text: line.slice(1) })
    else return null
  }
  return edits.length ? { edits, rest: [] } : null
}
