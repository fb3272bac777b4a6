// What a task says and does while it runs: its own stream, resumed where it broke off.
import type { Task } from '../model/nouns.ts'
import { path, refusal } from './http.ts'
import { SentReader } from './sse.ts'

export type Said =
  | { is: 'text'; text: string; isPartial: boolean }
  | { is: 'tool'; tool: string; detail: string }
  | { is: 'note'; text: string; isBad: boolean }

interface Heard { name: string; data: Record<string, unknown> }

/** What is shown after one more event. Pure. */
export function addSaid(said: Said[], { name, data }: Heard): Said[] {
  const last = said.at(-1)
  const text = String(data['text'] ?? '')
  switch (name) {
    case 'partial':
      if (last?.is === 'text' && last.isPartial && !data['is_first']) return [...said.slice(0, -1), { ...last, text: last.text + text }]
      return [...said, { is: 'text', text, isPartial: true }]
    case 'text': {
      const rest = last?.is === 'text' && last.isPartial ? said.slice(0, -1) : said
      const before = rest.at(-1)
      // Lines of a plain program belong together.
      if (data['is_line'] && before?.is === 'text' && !before.isPartial) return [...rest.slice(0, -1), { ...before, text: `${before.text}\n${text}` }]
      return [...rest, { is: 'text', text, isPartial: false }]
    }
    case 'tool': return [...said, { is: 'tool', tool: String(data['tool'] ?? ''), detail: String(data['detail'] ?? '') }]
    case 'retry': return [...said, { is: 'note', text: `tried again: ${String(data['why'] ?? data['reason'] ?? '')}`, isBad: false }]
    case 'denied': return [...said, { is: 'note', text: `${String(data['tool'] ?? 'a tool')} was denied`, isBad: true }]
    default: return said
  }
}

/** Follow a task to its end. */
export async function followTask(id: string, signal: AbortSignal, onSaid: (heard: Heard[]) => void, onEnd: (task: Task) => void): Promise<void> {
  let last = ''
  for (let wait = 250; !signal.aborted; wait = Math.min(4_000, wait * 2)) {
    try {
      const answer = await fetch(`/api/task${path(id)}/events`, { signal, headers: last ? { 'Last-Event-ID': last } : {} })
      if (!answer.ok || !answer.body) {
        const refused = await refusal(answer)
        if (answer.status < 500) throw refused
        await new Promise(resolve => setTimeout(resolve, wait))
        continue
      }
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader()
      const blocks = new SentReader()
      for (;;) {
        const { done, value } = await reader.read()
        if (done) break
        wait = 250
        const heard: Heard[] = []
        for (const sent of blocks.feed(value)) {
          if (sent.id) last = sent.id
          if (!sent.data) continue
          const data = JSON.parse(sent.data) as Record<string, unknown>
          heard.push({ name: sent.name, data })
        }
        if (heard.length) onSaid(heard)
        const end = heard.find(one => one.name === 'end')
        if (end) return onEnd((end.data['task'] ?? end.data) as unknown as Task)
      }
    } catch (error) {
      if (signal.aborted || (error instanceof Error && 'status' in error)) throw error
    }
    await new Promise(resolve => setTimeout(resolve, wait))
  }
}
