// A conversation out of a transcript's entries. Pure.
import type { Entry } from './nouns.ts'

export interface Turn { key: string; kind: 'prompt' | 'answer' | 'tool'; at: number; text: string; tool: string; result: string | null }

/** Entries with those of another page: one that comes again, with more in it, takes its place. */
export function addEntries(known: Entry[], more: Entry[]): Entry[] {
  const entries = [...known]
  const at = new Map<string, number>()
  entries.forEach((entry, index) => { if (entry.key) at.set(entry.key, index) })
  for (const entry of more) {
    const index = entry.key ? at.get(entry.key) : undefined
    if (index !== undefined) entries[index] = entry
    else {
      if (entry.key) at.set(entry.key, entries.length)
      entries.push(entry)
    }
  }
  return entries
}

/** What a person reads: results stand with their tools, empty entries are left out. */
export function turns(entries: Entry[]): Turn[] {
  const found: Turn[] = []
  const open: Turn[] = []
  entries.forEach((entry, index) => {
    if (entry.kind === 'result') {
      const tool = open.shift()
      if (tool) tool.result = entry.text
      return
    }
    if (entry.kind !== 'tool' && !entry.text.trim()) return
    const turn: Turn = { key: entry.key || String(index), kind: entry.kind, at: entry.at, text: entry.text, tool: entry.tool, result: null }
    if (entry.kind === 'tool') open.push(turn)
    else open.length = 0
    found.push(turn)
  })
  return found
}
