// What happened to an agent, the newest first: in words, from the event log; and its tasks.
import { useEffect, useState } from 'preact/hooks'
import type { Agent, HubEvent, State } from '../model/nouns.ts'
import { detailOf, lookOf } from '../model/states.ts'
import { exactClock } from '../model/text.ts'
import { get } from '../live/http.ts'
import { newsOf } from '../live/news.ts'
import { useWorld } from '../live/store.ts'
import { StateIcon } from '../parts/icons.tsx'
import { TaskHistory } from '../parts/tasks.tsx'
import { Empty, Literal, Problem } from '../parts/text.tsx'

const PAGE = 200
const NEWEST = Number.MAX_SAFE_INTEGER

function worded(event: HubEvent): { text: string; look: ReturnType<typeof lookOf> } | null {
  if (event.kind === 'agent.state') {
    const state = event.data['state'] as State
    const detail = detailOf(state)
    return { text: detail ? `${state.state} (${detail})` : state.state, look: lookOf(state) }
  }
  const news = newsOf(event)
  if (news) return { text: news.text, look: news.tone === 'good' ? 'done' : news.tone === 'bad' ? 'bad' : 'idle' }
  if (event.kind === 'approval.asked') return { text: `asked for ${String(event.data['tool'] ?? '')}`, look: 'need' }
  return null
}

export function History({ agent }: { agent: Agent }) {
  const [events, setEvents] = useState<HubEvent[] | null>(null)
  const [isMore, setMore] = useState(false)
  const [error, setError] = useState<unknown>(null)
  const returns = useWorld(world => world.returns)
  const ask = async (query: { before: number } | { after: number }, signal?: AbortSignal) =>
    (await get<{ events: HubEvent[] }>('/events', { ...query, limit: PAGE, agent: agent.name }, signal)).events
  const older = async (before: number, known: HubEvent[], signal?: AbortSignal) => {
    const page = await ask({ before }, signal)
    setMore(page.length === PAGE)
    setEvents([...known, ...page])
  }
  const show = (reading: Promise<void>, signal?: AbortSignal) => {
    reading.then(() => setError(null), (failure: unknown) => { if (!signal?.aborted) setError(failure) })
  }
  useEffect(() => {
    const abort = new AbortController()
    const read = async () => {
      const newer = events?.length ? await ask({ after: events[0]!.id }, abort.signal) : null
      // After a long time there would be a gap: it begins anew with the newest.
      if (!newer || newer.length === PAGE) await older(NEWEST, [], abort.signal)
      else setEvents([...newer.reverse(), ...events!])
    }
    show(read(), abort.signal)
    return () => abort.abort()
  }, [agent.since, returns])
  if (agent.kind === 'headless') return <TaskHistory agent={agent.name} />
  if (error && !events) return <Problem error={error} />
  if (!events) return <p class="dim">Reading…</p>
  const lines = events.map(event => ({ event, said: worded(event) })).filter(line => line.said !== null)
  return (
    <div class="card">
      {error !== null && <div class="pad"><Problem error={error} /></div>}
      {lines.length === 0 && <Empty title="Nothing yet" />}
      <ul class="news">
        {lines.map(({ event, said }) => (
          <li key={event.id}><span class={said!.look}><StateIcon look={said!.look} size={13} /></span><span><Literal text={said!.text} /></span><time class="dim small">{exactClock(event.time)}</time></li>
        ))}
      </ul>
      {isMore && <button class="btn plain" onClick={() => show(older(events.at(-1)!.id, events))}>Older</button>}
    </div>
  )
}
