// What was said and done, as readable messages.
import { useEffect, useRef, useState } from 'preact/hooks'
import type { Agent, Entry, Transcript } from '../model/nouns.ts'
import { addEntries, turns } from '../model/conversation.ts'
import { clock } from '../model/text.ts'
import { get, path, Refused } from '../live/http.ts'
import { useWorld } from '../live/store.ts'
import { useCalm } from '../parts/fetched.tsx'
import { Empty, Literal, Problem } from '../parts/text.tsx'
import { ToolUse } from './tool_use.tsx'

const MOST_PAGES = 40

export function Conversation({ agent, task = '' }: { agent: Agent; task?: string }) {
  const touched = useWorld(world => world.touched[agent.name])
  const returns = useWorld(world => world.returns)
  const calm = useCalm(touched)
  const [entries, setEntries] = useState<Entry[] | null>(null)
  const [error, setError] = useState<unknown>(null)
  const read = useRef({ conversation: '', offset: 0 })  // how far `entries` go
  const end = useRef<HTMLDivElement>(null)
  useEffect(() => {
    const abort = new AbortController()
    const readOn = async () => {
      let known = entries ?? []
      let { conversation, offset } = read.current
      for (let page = 0; page < MOST_PAGES; page++) {
        const query = { offset, ...(task ? { task } : {}) }
        const found = await get<Transcript>(`/agents${path(agent.name)}/transcript`, query, abort.signal)
        if (found.conversation !== conversation) {
          // Another conversation than before: from its beginning.
          const isFirst = conversation === ''
          conversation = found.conversation
          offset = isFirst ? found.offset : 0
          known = isFirst ? found.entries : []
          if (!isFirst) continue
        } else {
          known = addEntries(known, found.entries)
          offset = found.offset
        }
        // Page by page: where it is broken off, the next look goes on, and nothing is lost.
        read.current = { conversation, offset }
        setEntries(known)
        if (!found.more) break
      }
      setError(null)
    }
    readOn().catch((failure: unknown) => { if (!abort.signal.aborted) setError(failure) })
    return () => abort.abort()
  }, [agent.name, agent.run, task, calm, returns])
  useEffect(() => {
    const isNearEnd = innerHeight + scrollY > document.documentElement.scrollHeight - 240
    if (isNearEnd) end.current?.scrollIntoView({ block: 'nearest' })
  }, [entries?.length])

  if (error instanceof Refused && error.status === 404 && !entries) {
    return <Empty title="Nothing is written down"><Literal text={error.message} /></Empty>
  }
  if (error && !entries) return <Problem error={error} />
  if (!entries) return <p class="dim">Reading…</p>
  const found = turns(entries)
  return (
    <div class="stack" role="log" aria-label="conversation">
      {found.length === 0 && <Empty title="Nothing was said yet" />}
      {found.map(turn => turn.kind === 'tool'
        ? <ToolUse key={turn.key} turn={turn} base={agent.worktree?.path ?? agent.cwd} />
        : (
          <div key={turn.key}>
            <p class="said-by">{turn.kind === 'prompt' ? 'prompt' : agent.name}{turn.at > 0 && ` · ${clock(turn.at)}`}</p>
            <div class={turn.kind === 'prompt' ? 'said prompt' : 'said'}><Literal text={turn.text} /></div>
          </div>
        ))}
      <div ref={end} />
    </div>
  )
}
