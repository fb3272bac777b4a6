// What a tool wants to do, in a form that a person reads fast and completely. Pure.
import { compare, type DiffLine } from './diff.ts'

export interface Edit { path: string; lines: DiffLine[]; isNew: boolean }
export interface Shown { edits: Edit[]; rest: [string, string][] }

const KNOWN: Record<string, string[]> = {
  Edit: ['file_path', 'old_string', 'new_string'],
  MultiEdit: ['file_path', 'edits'],
  Write: ['file_path', 'content'],
}

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
  if (tool === 'Write') {
    const content = input['content']
    return typeof content === 'string' ? [{ path, isNew: true, lines: compare('', content) }] : null
  }
  const parts = tool === 'Edit' ? [input] : input['edits']
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
