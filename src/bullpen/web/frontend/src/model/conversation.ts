// A conversation out of a transcript's entries. Pure.
import type { Entry } from './nouns.ts'
import { oneLine } from './text.ts'

export interface Turn {
  key: string
  kind: 'prompt' | 'answer' | 'tool'
  at: number
  text: string
  tool: string
  input: Record<string, unknown> | null
  result: string | null
}

/** Of one line of a transcript there may be several, of which each has its own call. */
function identity(entry: Entry): string {
  return entry.key && `${entry.kind} ${entry.key} ${entry.call}`
}

/** Entries with those of another page: one that comes again, with more in it, takes its place. */
export function addEntries(known: Entry[], more: Entry[]): Entry[] {
  const entries = [...known]
  const at = new Map<string, number>()
  entries.forEach((entry, index) => { if (entry.key) at.set(identity(entry), index) })
  for (const entry of more) {
    const index = entry.key ? at.get(identity(entry)) : undefined
    if (index !== undefined) entries[index] = entry
    else {
      if (entry.key) at.set(identity(entry), entries.length)
      entries.push(entry)
    }
  }
  return entries
}

/** What a person reads: results stand with their tools, by the call's id where there is one, else in
 *  their order. Empty entries are left out. */
export function turns(entries: Entry[]): Turn[] {
  const shown: Turn[] = []
  const byCall = new Map<string, Turn>()
  const open: Turn[] = []
  entries.forEach((entry, index) => {
    if (entry.kind === 'result') {
      const tool = entry.call ? byCall.get(entry.call) : open.shift()
      if (tool) tool.result = tool.result === null ? entry.text : `${tool.result}\n${entry.text}`
      return
    }
    if (entry.kind !== 'tool' && !entry.text.trim()) return
    const { kind, at, text, tool, input } = entry
    const turn: Turn = { key: identity(entry) || String(index), kind, at, text, tool, input, result: null }
    if (kind !== 'tool') open.length = 0
    else if (entry.call) byCall.set(entry.call, turn)
    else open.push(turn)
    shown.push(turn)
  })
  return shown
}

/** All that a tool was given: first what it is mostly about, whole, then each other field by name. */
export function givenText({ text, input }: Pick<Turn, 'text' | 'input'>): string {
  const fields = Object.entries(input ?? {}).map(([name, value]): [string, string] => [name, typeof value === 'string' ? value : JSON.stringify(value)])
  const main = text ? fields.findIndex(([, value]) => oneLine(value).startsWith(oneLine(text).slice(0, 100))) : -1
  const rest = fields.filter((_, at) => at !== main).map(([name, value]) => `⟨${name}⟩ ${value}`)
  return [fields[main]?.[1] ?? text, ...rest].filter(Boolean).join('\n')
}
